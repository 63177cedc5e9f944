//! Child processes: long-lived ones that stop with their owner, and short ones that are awaited.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::signals;

/// Time for a child to end before it is killed.
const GRACE: Duration = Duration::from_secs(30);
const TAIL: usize = 25;

/// A long-lived child. It writes to a log file and gets SIGTERM when it is dropped.
pub struct ChildProcess {
    name: &'static str,
    child: Child,
    pub log: PathBuf,
}

impl ChildProcess {
    /// Starts it in its own process group, so that the terminal's Ctrl-C reaches only this tool, which forwards it
    /// once.
    pub fn spawn(name: &'static str, command: &mut Command, log: PathBuf) -> Result<Self> {
        let out = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let err = out
            .try_clone()
            .with_context(|| format!("cannot write {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let process = Self { name, child, log };
        let pid = process.pid_file();
        fs::write(&pid, process.child.id().to_string()).with_context(|| format!("cannot write {}", pid.display()))?;
        Ok(process)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the process has ended.
    pub fn alive(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => bail!("{} ended ({status}); its log ends:\n{}", self.name, self.tail()),
            Err(cause) => Err(cause).with_context(|| format!("cannot check {}", self.name)),
        }
    }

    /// Waits until `ready` returns true. Fails if the process ends first, at the deadline, and on a signal.
    pub fn wait_until(&mut self, deadline: Duration, mut ready: impl FnMut() -> bool) -> Result<()> {
        let start = Instant::now();
        while !ready() {
            self.alive()?;
            if start.elapsed() > deadline {
                let seconds = deadline.as_secs();
                bail!(
                    "{} is not ready after {seconds} s; its log ends:\n{}",
                    self.name,
                    self.tail()
                );
            }
            signals::pause()?;
        }
        Ok(())
    }

    fn pid_file(&self) -> PathBuf {
        self.log.with_extension("pid")
    }

    pub fn tail(&self) -> String {
        tail(&self.log)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.pid_file());
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        terminate(&self.child.id().to_string());
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > GRACE || signals::received_twice() {
                eprintln!("{} does not end; killing it", self.name);
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            sleep(Duration::from_millis(20));
        }
    }
}

/// Stops the process that a killed launcher left running: the pid in the file next to this log, if it is this program.
pub fn stop_left_over(log: &Path, program: &Path) {
    let Ok(pid) = fs::read_to_string(log.with_extension("pid")) else {
        return;
    };
    let runs = || command_line(&pid).contains(&*program.to_string_lossy());
    let start = Instant::now();
    if runs() {
        terminate(&pid);
        while runs() && start.elapsed() < GRACE {
            sleep(Duration::from_millis(20));
        }
    }
}

/// Runs a command in this terminal. Fails if the command does not succeed.
pub fn run(command: &mut Command, name: &str) -> Result<()> {
    finish(&mut start(command, name)?, name)
}

/// Starts a short-lived child as the leader of a process group, so that a signal reaches its own children too.
pub fn start(command: &mut Command, name: &str) -> Result<Child> {
    command
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {name}"))
}

/// Waits for a short-lived child and forwards a signal to it.
pub fn finish(child: &mut Child, name: &str) -> Result<()> {
    loop {
        match child.try_wait().with_context(|| format!("cannot wait for {name}"))? {
            Some(status) if status.success() => return Ok(()),
            Some(_) if signals::received() => bail!("interrupted"),
            Some(status) => bail!("{name} failed ({status})"),
            None => {}
        }
        if signals::pause().is_err() {
            terminate(&format!("-{}", child.id()));
            let _ = child.wait();
            bail!("interrupted");
        }
    }
}

/// Runs a command without output and returns its stdout. The error contains its output.
pub fn quietly(command: &mut Command, name: &str) -> Result<String> {
    let out = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {name}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    if out.status.success() {
        return Ok(text);
    }
    let problem = String::from_utf8_lossy(&out.stderr);
    bail!(
        "{name} failed ({}): {}{}",
        out.status,
        last_lines(&text),
        last_lines(&problem)
    )
}

/// The end of a log file.
pub fn tail(log: &Path) -> String {
    match fs::read(log) {
        Ok(bytes) => last_lines(&String::from_utf8_lossy(&bytes)),
        Err(_) => format!("(no {})", log.display()),
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines
        .iter()
        .skip(lines.len().saturating_sub(TAIL))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Sends SIGTERM to a process, or with a minus to a group. It uses the shell's builtin `kill`: small images lack the
/// program, and the system call would need unsafe code.
fn terminate(target: &str) {
    let _ = Command::new("sh")
        .args(["-c", "kill -TERM \"$1\" 2>/dev/null", "sh", target])
        .status();
}

/// The command line of a process. Empty if the process does not exist.
pub fn command_line(pid: &str) -> String {
    if Path::new("/proc/self").exists() {
        return fs::read(Path::new("/proc").join(pid).join("cmdline"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default();
    }
    let shown = Command::new("ps").args(["-p", pid, "-o", "args="]).output();
    shown
        .map(|out| String::from_utf8_lossy(&out.stdout).into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_process_ends_on_sigterm() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done",
        ]);
        let mut process = ChildProcess::spawn("sh", &mut command, log.clone()).unwrap();
        process
            .wait_until(Duration::from_secs(10), || tail(&log).contains("up"))
            .unwrap();
        drop(process);
        assert_eq!(tail(&log), "up\nbye\n");
    }

    #[test]
    fn process_of_a_killed_launcher_is_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut process = ChildProcess::spawn("sleep", Command::new("sleep").arg("600"), log.clone()).unwrap();
        let pid = process.id().to_string();
        // Between fork and exec, a process briefly has no command line.
        process
            .wait_until(Duration::from_secs(10), || command_line(&pid).contains("sleep"))
            .unwrap();
        stop_left_over(&log, Path::new("another program"));
        assert!(command_line(&pid).contains("sleep"));
        stop_left_over(&log, Path::new("sleep"));
        assert_eq!(command_line(&pid), "");
        drop(process);
    }

    #[test]
    fn ended_process_is_reported_with_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "echo cannot go on; exit 3"]);
        let mut process = ChildProcess::spawn("sh", &mut command, log.clone()).unwrap();
        let failure = process
            .wait_until(Duration::from_secs(10), || false)
            .unwrap_err()
            .to_string();
        assert!(failure.contains("cannot go on"), "{failure:#}");
    }
}
