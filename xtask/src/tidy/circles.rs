//! No import circles: between the contexts of a crate (the modules below `lib.rs`), or between the files of a context.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::finding::Finding;
use super::imports::{Import, imports};

/// Each import with its first location.
#[derive(Debug, Default)]
struct Graph(BTreeMap<String, BTreeMap<String, (String, usize)>>);

/// `sources` are the Rust files of the repository with their texts.
pub(super) fn check(sources: &[(String, String)]) -> Vec<Finding> {
    let mut graph = Graph::default();
    for (src, files) in crates(sources) {
        for import in imports(&src, &files) {
            graph.add(&src, &import);
        }
    }
    graph.check()
}

/// The files of every crate by its `src` folder.
fn crates(sources: &[(String, String)]) -> BTreeMap<String, Vec<(String, String)>> {
    let mut crates: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for (path, text) in sources {
        if let Some((folder, _)) = path.split_once("/src/") {
            let files = crates.entry(format!("{folder}/src/")).or_default();
            files.push((path.clone(), text.clone()));
        }
    }
    crates
}

impl Graph {
    /// Adds an import between two contexts, or between two files of one context.
    fn add(&mut self, src: &str, import: &Import) {
        let location = (import.file.clone(), import.line);
        for used in &import.used_contexts {
            self.edge(format!("{src}{}", import.context), format!("{src}{used}"), &location);
        }
        if let Some(used) = import.used_file.as_ref().filter(|_| import.used_contexts.is_empty()) {
            self.edge(import.file.clone(), used.clone(), &location);
        }
    }

    fn edge(&mut self, from: String, to: String, location: &(String, usize)) {
        let locations = self.0.entry(from).or_default();
        locations.entry(to).or_insert_with(|| location.clone());
    }

    fn check(&self) -> Vec<Finding> {
        let circles = self.circles();
        let finding = |circle: &Vec<String>| {
            let [from, to, ..] = circle.as_slice() else { return None };
            let (path, line) = self.0.get(from)?.get(to)?;
            let message = format!(
                "import circle: {}. Move what both sides need into a file or context below them",
                circle.join(" -> ")
            );
            Some(Finding::new(path, *line, message))
        };
        circles.iter().filter_map(finding).collect()
    }

    /// The shortest circles, each node in at most one. A circle ends with its first node.
    fn circles(&self) -> Vec<Vec<String>> {
        let mut circles = Vec::new();
        for (from, used) in &self.0 {
            for to in used.keys() {
                if let Some(path) = self.path(to, from) {
                    circles.push([vec![from.clone()], path].concat());
                }
            }
        }
        circles.sort_by_key(Vec::len);
        let mut reported = BTreeSet::new();
        circles.retain(|circle| {
            let new = circle.iter().all(|node| !reported.contains(node));
            if new {
                reported.extend(circle.iter().cloned());
            }
            new
        });
        circles
    }

    /// The shortest path between two nodes, with both of them.
    fn path(&self, start: &str, end: &str) -> Option<Vec<String>> {
        let mut queue = VecDeque::from([vec![start.to_owned()]]);
        let mut seen = BTreeSet::from([start.to_owned()]);
        while let Some(path) = queue.pop_front() {
            let last = path.last()?;
            if last == end {
                return Some(path);
            }
            for next in self.0.get(last).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(next.clone()) {
                    queue.push_back([path.clone(), vec![next.clone()]].concat());
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(files: &[(&str, &str)]) -> Graph {
        let files: Vec<(String, String)> = files
            .iter()
            .map(|(path, text)| (format!("crates/x/src/{path}"), (*text).to_owned()))
            .collect();
        let mut graph = Graph::default();
        for (src, files) in crates(&files) {
            for import in imports(&src, &files) {
                graph.add(&src, &import);
            }
        }
        graph
    }

    #[test]
    fn circle_of_contexts_is_reported_once_as_a_path() {
        let graph = graph(&[
            ("a.rs", "\nuse crate::b::B;\npub struct A;\n"),
            ("b/mod.rs", "mod b;\npub use b::B;\n"),
            ("b/b.rs", "use crate::c::C;\npub struct B;\n"),
            ("c.rs", "use crate::a::A;\npub struct C;\n"),
            ("d.rs", "use crate::a::A;\n"),
        ]);
        let message = "import circle: crates/x/src/a -> crates/x/src/b -> crates/x/src/c -> crates/x/src/a. \
                       Move what both sides need into a file or context below them";
        assert_eq!(graph.check(), [Finding::new("crates/x/src/a.rs", 2, message)]);
    }

    #[test]
    fn circle_of_files_is_reported_within_a_context() {
        let circle = [
            ("a/mod.rs", "mod x;\nmod y;\npub use x::X;\npub use y::Y;\n"),
            ("a/x.rs", "use super::Y;\npub struct X;\n"),
            ("a/y.rs", "pub struct Y(super::x::X);\n"),
        ];
        let found = graph(&circle).check();
        let locations: Vec<(&str, usize)> = found.iter().map(|found| (found.path.as_str(), found.line)).collect();
        assert_eq!(locations, [("crates/x/src/a/x.rs", 1)]);
        let child_and_mod = [
            ("a/mod.rs", "use x::X;\npub struct A;\n"),
            ("a/x.rs", "use super::A;\npub struct X;\n"),
        ];
        assert_eq!(graph(&child_and_mod).check().len(), 1);
        let line = [
            ("a/mod.rs", "pub use x::X;\npub struct A;\n"),
            ("a/x.rs", "use super::A;\npub struct X;\n"),
        ];
        assert_eq!(graph(&line).check(), []);
    }
}
