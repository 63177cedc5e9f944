//! Extracts the commands of a page.

/// The start of a block that runs.
const RUN: &str = "```sh";

/// The comment in which a page lists its required programs.
const NEEDS: &str = "<!-- needs: ";

/// Bash prelude: ends at the first failing command and prints the line of its block.
const HEAD: &str = "set -Eeuo pipefail\ntrap 'echo \"the block at line $BLOCK failed: $BASH_COMMAND\" >&2' ERR\n";

/// The programs that a page requires.
pub(super) fn needs(text: &str) -> Vec<&str> {
    let list = text
        .lines()
        .find_map(|line| line.strip_prefix(NEEDS)?.strip_suffix("-->"));
    list.unwrap_or("bash curl").split_whitespace().collect()
}

/// The blocks of a page as one script.
pub(super) fn script(text: &str) -> String {
    let blocks = blocks(text).into_iter();
    let named = blocks.map(|(line, block)| format!("BLOCK={line}\n{block}"));
    HEAD.to_owned() + &named.collect::<String>()
}

/// The blocks of a page that run, each with its first line.
pub(crate) fn blocks(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut open) = (Vec::new(), None);
    for (index, line) in text.lines().enumerate() {
        match (&mut open, line.trim_end()) {
            (None, RUN) => open = Some((index + 1, String::new())),
            (Some(_), "```") => found.extend(open.take()),
            (Some((_, block)), line) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, _) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{needs, script};

    fn run(page: &str) -> (Option<i32>, String, String) {
        let out = Command::new("bash").args(["-c", &script(page)]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    }

    #[test]
    fn guide_sh_blocks_run_in_one_session() {
        let page = "# A\n```sh\nA=1\n```\ntext\n```text\nexit 7\n```\n```sh\necho $A\n```\n```console\nexit 8\n```\n";
        assert_eq!(run(page), (Some(0), "1\n".to_owned(), String::new()));
    }

    #[test]
    fn guide_failing_block_is_named() {
        let (code, out, err) = run("\n```sh\ntrue\n```\n\n```sh\necho x | grep -q y\n```\n```sh\necho never\n```\n");
        assert_eq!((code, out.as_str()), (Some(1), ""));
        assert!(err.contains("the block at line 6 failed"), "{err}");
    }

    #[test]
    fn guide_lists_its_programs() {
        assert_eq!(
            needs("# A\n\n<!-- needs: bash curl node -->\n"),
            ["bash", "curl", "node"]
        );
        assert_eq!(needs("# A\n"), ["bash", "curl"]);
    }
}
