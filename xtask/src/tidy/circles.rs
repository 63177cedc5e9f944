//! No import circles: between the contexts of a crate (the modules below `lib.rs`), or between the files of a context.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Finding;
use super::imports::{Import, imports};

/// The file of [`KNOWN`].
const LIST: &str = "xtask/src/tidy/known_imports.txt";

/// Imports that close a circle and still have to go, one a line. The list may only shrink.
const KNOWN: &str = include_str!("known_imports.txt");

/// An entry of [`KNOWN`].
#[derive(Debug)]
struct Known<'a> {
    line: usize,
    from: &'a str,
    to: &'a str,
}

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
    graph.check(&known_imports(KNOWN))
}

/// The imports of the list, with their lines.
fn known_imports(list: &str) -> Vec<Known<'_>> {
    let lines = (1..).zip(list.lines());
    lines
        .filter_map(|(line, text)| {
            let (from, to) = text.split_once(" -> ")?;
            Some(Known { line, from, to })
        })
        .collect()
}

/// The files of every crate by its `src` folder.
fn crates(sources: &[(String, String)]) -> BTreeMap<String, Vec<(String, String)>> {
    let mut crates: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for (path, text) in sources.iter().filter(|(path, _)| path.starts_with("crates/")) {
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

    fn check(&self, known: &[Known<'_>]) -> Vec<Finding> {
        let mut findings = Vec::new();
        for Known { line, from, to } in known {
            let exists = self.0.get(*from).is_some_and(|used| used.contains_key(*to));
            if !exists || self.path(to, from, &[]).is_none() {
                let message = format!("{from} -> {to} closes no import circle any more: remove the line");
                findings.push(Finding::new(LIST, *line, message));
            }
        }
        for circle in self.circles(known) {
            let [from, to, ..] = circle.as_slice() else { continue };
            let location = self.0.get(from).and_then(|used| used.get(to));
            let (path, line) = location.map_or((LIST, 1), |(path, line)| (path.as_str(), *line));
            let message = format!(
                "import circle: {}. Move what both sides need into a file or context below them",
                circle.join(" -> ")
            );
            findings.push(Finding::new(path, line, message));
        }
        findings
    }

    /// The shortest circles without known imports, each node in at most one. A circle ends with its first node.
    fn circles(&self, known: &[Known<'_>]) -> Vec<Vec<String>> {
        let mut circles = Vec::new();
        for (from, used) in &self.0 {
            for to in used.keys().filter(|to| !is_known(known, from, to)) {
                if let Some(path) = self.path(to, from, known) {
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
    fn path(&self, start: &str, end: &str, without: &[Known<'_>]) -> Option<Vec<String>> {
        let mut queue = VecDeque::from([vec![start.to_owned()]]);
        let mut seen = BTreeSet::from([start.to_owned()]);
        while let Some(path) = queue.pop_front() {
            let last = path.last()?;
            if last == end {
                return Some(path);
            }
            let used = self.0.get(last).into_iter().flat_map(BTreeMap::keys);
            for next in used.filter(|next| !is_known(without, last, next)) {
                if seen.insert(next.clone()) {
                    queue.push_back([path.clone(), vec![next.clone()]].concat());
                }
            }
        }
        None
    }
}

fn is_known(known: &[Known<'_>], from: &str, to: &str) -> bool {
    known.iter().any(|known| known.from == from && known.to == to)
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
        assert_eq!(graph.check(&[]), [Finding::new("crates/x/src/a.rs", 2, message)]);
    }

    #[test]
    fn circle_of_files_is_reported_within_a_context() {
        let circle = [
            ("a/mod.rs", "mod x;\nmod y;\npub use x::X;\npub use y::Y;\n"),
            ("a/x.rs", "use super::Y;\npub struct X;\n"),
            ("a/y.rs", "pub struct Y(super::x::X);\n"),
        ];
        let found = graph(&circle).check(&[]);
        let locations: Vec<(&str, usize)> = found.iter().map(|found| (found.path.as_str(), found.line)).collect();
        assert_eq!(locations, [("crates/x/src/a/x.rs", 1)]);
        let child_and_mod = [
            ("a/mod.rs", "use x::X;\npub struct A;\n"),
            ("a/x.rs", "use super::A;\npub struct X;\n"),
        ];
        assert_eq!(graph(&child_and_mod).check(&[]).len(), 1);
        let line = [
            ("a/mod.rs", "pub use x::X;\npub struct A;\n"),
            ("a/x.rs", "use super::A;\npub struct X;\n"),
        ];
        assert_eq!(graph(&line).check(&[]), []);
    }

    #[test]
    fn known_import_is_allowed_while_it_closes_a_circle() {
        let known = known_imports("# A comment.\ncrates/x/src/b -> crates/x/src/a\n");
        let b = ("b.rs", "use crate::a::A;\npub struct B;\n");
        let circle = graph(&[("a.rs", "use crate::b::B;\npub struct A;\n"), b]);
        assert_eq!(circle.check(&known), []);
        let message = "crates/x/src/b -> crates/x/src/a closes no import circle any more: remove the line";
        let stale = [Finding::new(LIST, 2, message)];
        assert_eq!(graph(&[("a.rs", "pub struct A;\n"), b]).check(&known), stale);
        assert_eq!(
            graph(&[("a.rs", "use crate::b::B;\npub struct A;\n")]).check(&known),
            stale
        );
    }
}
