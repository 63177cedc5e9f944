//! Every committed input of the corpora meets the properties of its target.

use std::fs;
use std::path::PathBuf;

use recado_fuzz::TARGETS;

fn corpora() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

#[test]
fn committed_inputs_meet_the_properties_of_their_target() {
    for target in TARGETS {
        let files = fs::read_dir(corpora().join(target.name)).unwrap();
        let mut inputs = 0;
        for file in files {
            let path = file.unwrap().path();
            // Names the input if the target panics: only a failed test shows its output.
            println!("{}", path.display());
            (target.run)(&fs::read(path).unwrap());
            inputs += 1;
        }
        assert!(inputs > 0, "{} has no committed input", target.name);
    }
}

#[test]
fn every_corpus_belongs_to_a_target() {
    for entry in fs::read_dir(corpora()).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(TARGETS.iter().any(|target| target.name == name), "{name:?}");
    }
}
