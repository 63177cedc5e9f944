//! A progress bar on a terminal, and plain lines everywhere else.

use std::io::{IsTerminal, Write};

pub(crate) struct Progress {
    total: usize,
    done: usize,
    redraw: bool,
}

impl Progress {
    pub(crate) fn new(total: usize) -> Self {
        Self {
            total,
            done: 0,
            redraw: std::io::stdout().is_terminal(),
        }
    }

    /// Prints that a step begins.
    pub(crate) fn step(&mut self, what: &str) {
        self.done = self.total.min(self.done + 1);
        if self.redraw {
            print!("\r\x1b[K{} {what}", bar(self.done, self.total));
            let _ = std::io::stdout().flush();
        } else {
            println!("seed {}/{}: {what}", self.done, self.total);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.redraw {
            println!();
        }
    }
}

fn bar(done: usize, total: usize) -> String {
    const WIDTH: usize = 24;
    let full = (done * WIDTH).checked_div(total).unwrap_or(WIDTH);
    format!(
        "[{}{}] {done}/{total}",
        "#".repeat(full),
        "-".repeat(WIDTH.saturating_sub(full))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_bar_fills_up() {
        assert_eq!(bar(0, 4), "[------------------------] 0/4");
        assert_eq!(bar(1, 4), "[######------------------] 1/4");
        assert_eq!(bar(4, 4), "[########################] 4/4");
    }
}
