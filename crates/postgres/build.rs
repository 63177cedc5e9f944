//! Tells cargo that the migrations are embedded, and names their content and the partitioned tables, so that tests know
//! which template fits.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::{fs, io};

fn main() -> io::Result<()> {
    let migrations = Path::new("../../migrations");
    println!("cargo:rerun-if-changed={}", migrations.display());
    // Directories of migrations, and the functions.
    let mut directories = fs::read_dir(migrations)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    directories.sort();
    let mut hasher = DefaultHasher::new();
    for directory in directories {
        println!("cargo:rerun-if-changed={}", directory.display());
        let file = match directory.is_dir() {
            true => directory.join("up.sql"),
            false => directory,
        };
        file.hash(&mut hasher);
        fs::read(&file)?.hash(&mut hasher);
    }
    for source in ["bounds.rs", "store.rs", "tables.rs"] {
        let source = Path::new("src/partitions").join(source);
        println!("cargo:rerun-if-changed={}", source.display());
        fs::read(source)?.hash(&mut hasher);
    }
    println!("cargo:rustc-env=RECADO_MIGRATIONS_HASH={:016x}", hasher.finish());
    Ok(())
}
