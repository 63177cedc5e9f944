//! buildah, which builds and runs images without a daemon.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use recado_testkit::process;

/// buildah with a storage of its own.
pub(super) struct Buildah {
    pub(super) program: PathBuf,
    pub(super) storage: PathBuf,
}

impl Buildah {
    pub(super) fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--root").arg(self.storage.join("root"));
        command.arg("--runroot").arg(self.storage.join("run"));
        command.args(["--storage-driver", "vfs", subcommand]);
        // No user namespace and no OCI runtime: a build machine may have neither.
        if ["build", "run"].contains(&subcommand) {
            command.args(["--isolation", "chroot"]);
        }
        command
    }

    pub(super) fn build(&self, name: &str, containerfile: &Path, context: &Path) -> Result<()> {
        let mut build = self.command("build");
        build.args(["--format", "docker", "--pull-never", "--tag", name, "--file"]);
        build.arg(containerfile).arg(context);
        process::quietly(&mut build, &format!("buildah build {name}")).map(drop)
    }
}
