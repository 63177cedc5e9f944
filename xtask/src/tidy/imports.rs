//! Finds which file of a crate uses which: reads `use` declarations and paths as plain text, without test code.
//!
//! A name counts for the file that defines it: `super::Name` through a `pub use` of `mod.rs` leads to the child. The
//! re-export of a child by its own `mod.rs` is no use, unless that file itself needs the name.

use std::collections::{BTreeMap, BTreeSet};

use super::tokens::{self, Token};

/// Path of a module below its crate: empty for `lib.rs`.
type ModulePath = Vec<String>;

/// Re-exports of re-exports are followed so many times. More can only be a mistake.
const MAX_REEXPORTS: usize = 8;

/// One file uses an item of another.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Import {
    /// The path of the importing file, and the line.
    pub(super) file: String,
    pub(super) line: usize,
    /// The importing context: the module below `lib.rs`.
    pub(super) context: String,
    /// The contexts that the path names: the written one, and the one that defines the item.
    pub(super) used_contexts: BTreeSet<String>,
    /// The file that defines the item. `None`: the import names a module as a whole.
    pub(super) used_file: Option<String>,
}

/// A name that a `use` declaration brings into a module.
#[derive(Debug)]
struct Use {
    line: usize,
    name: String,
    /// Absolute path below the crate. `None`: an item of another crate.
    path: Option<ModulePath>,
    public: bool,
}

#[derive(Debug)]
struct Module {
    file: String,
    /// Without test code and without `use` declarations.
    tokens: Vec<Token>,
    uses: Vec<Use>,
}

/// The modules of one crate.
#[derive(Debug, Default)]
struct Modules(BTreeMap<ModulePath, Module>);

/// Returns the imports between the files of one crate. `files` are paths and texts, `src` is its folder with a slash.
pub(super) fn imports(src: &str, files: &[(String, String)]) -> Vec<Import> {
    let modules = Modules::read(src, files);
    let mut found = Vec::new();
    // `lib.rs` only joins the contexts.
    for (path, module) in modules.0.iter().filter(|(path, _)| !path.is_empty()) {
        for (line, used) in modules.used_paths(path, module) {
            found.extend(modules.import(path, module, line, &used));
        }
    }
    found
}

impl Modules {
    fn read(src: &str, files: &[(String, String)]) -> Self {
        let mut modules = BTreeMap::new();
        let mut test_modules = Vec::new();
        for (file, text) in files {
            let Some(path) = file.strip_prefix(src).and_then(module_path) else {
                continue;
            };
            let (tokens, tests) = tokens::without_tests(tokens::tokens(text));
            test_modules.extend(tests.into_iter().map(|name| child(&path, &name)));
            let module = Module {
                file: file.clone(),
                tokens,
                uses: Vec::new(),
            };
            modules.insert(path, module);
        }
        modules.retain(|path, _| !test_modules.iter().any(|test| path.starts_with(test)));
        let mut modules = Self(modules);
        let paths: Vec<ModulePath> = modules.0.keys().cloned().collect();
        for path in paths {
            modules.separate_uses(&path);
        }
        modules
    }

    /// Moves the `use` declarations of a module out of its tokens.
    fn separate_uses(&mut self, path: &[String]) {
        let Some(module) = self.0.get_mut(path) else { return };
        let (tokens, declared) = tokens::separate_uses(std::mem::take(&mut module.tokens));
        let uses = declared.into_iter().map(|declared| Use {
            line: declared.line,
            path: self.absolute(&inner(path, &declared.inside), &declared.path),
            name: declared.name,
            public: declared.public,
        });
        let uses = uses.collect();
        if let Some(module) = self.0.get_mut(path) {
            module.tokens = tokens;
            module.uses = uses;
        }
    }

    /// The path below the crate of a path that is written in `module`. `None`: it leads to another crate.
    fn absolute(&self, module: &[String], written: &[String]) -> Option<ModulePath> {
        let (first, rest) = written.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module, rest].concat()),
            "super" => {
                let supers = written.iter().take_while(|word| *word == "super").count();
                let parent = module.get(..module.len().checked_sub(supers)?)?;
                Some([parent, written.get(supers..)?].concat())
            }
            _ => self
                .0
                .contains_key(&child(module, first))
                .then(|| [module, written].concat()),
        }
    }

    /// Every path of this crate that a module uses, with its line.
    fn used_paths(&self, path: &[String], module: &Module) -> Vec<(usize, ModulePath)> {
        let mut used = Vec::new();
        for declared in &module.uses {
            let Some(target) = &declared.path else { continue };
            let reexport = declared.public && target.starts_with(path);
            if !reexport || module.tokens.iter().any(|token| token.text == declared.name) {
                used.push((declared.line, target.clone()));
            }
        }
        for written in tokens::paths(&module.tokens) {
            let absolute = self.absolute(&inner(path, &written.inside), &written.path);
            // `use super::model;` and then `model::Name`.
            let imported = || {
                let (first, rest) = written.path.split_first()?;
                let declared = module.uses.iter().find(|declared| declared.name == *first)?;
                let target = declared.path.as_ref()?;
                self.0.contains_key(target).then(|| [target, rest].concat())
            };
            used.extend(absolute.or_else(imported).map(|target| (written.line, target)));
        }
        used
    }

    fn import(&self, path: &[String], module: &Module, line: usize, used: &[String]) -> Option<Import> {
        let context = path.first()?;
        let (target, whole) = self.definition(used, 0)?;
        // A file of the context, and not a name that `lib.rs` defines.
        let is_context = |name: &&String| self.0.contains_key(std::slice::from_ref(*name));
        let contexts = used.first().into_iter().chain(target.first()).filter(is_context);
        let used_contexts = contexts.filter(|name| *name != context).cloned().collect();
        let file = &self.0.get(&target)?.file;
        Some(Import {
            file: module.file.clone(),
            line,
            context: context.clone(),
            used_contexts,
            used_file: (!whole && *file != module.file).then(|| file.clone()),
        })
    }

    /// The module that defines an item, and whether the path names that module itself. `None`: another crate does.
    fn definition(&self, path: &[String], reexports: usize) -> Option<(ModulePath, bool)> {
        let length = (0..=path.len())
            .rev()
            .find(|length| path.get(..*length).is_some_and(|head| self.0.contains_key(head)))?;
        let (module, rest) = path.split_at_checked(length)?;
        let Some((name, tail)) = rest.split_first() else {
            return Some((module.to_vec(), true));
        };
        let uses = &self.0.get(module)?.uses;
        if reexports < MAX_REEXPORTS {
            if let Some(declared) = uses.iter().find(|declared| declared.name == *name) {
                let target = declared.path.as_ref()?;
                return self.definition(&[target, tail].concat(), reexports + 1);
            }
            for glob in uses.iter().filter(|declared| declared.public && declared.name == "*") {
                let Some(target) = glob.path.as_ref().and_then(|path| path.split_last()) else {
                    continue;
                };
                let (module, _) = self.definition(&child(target.1, name), reexports + 1)?;
                if self
                    .0
                    .get(&module)
                    .is_some_and(|module| tokens::defines(&module.tokens, name))
                {
                    return Some((module, false));
                }
            }
        }
        Some((module.to_vec(), false))
    }
}

/// The module of a file below `src`. `None`: a binary's root, which uses the library as another crate.
fn module_path(file: &str) -> Option<ModulePath> {
    let mut path: ModulePath = file.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    match path.last()?.as_str() {
        "main" if path.len() == 1 => return None,
        "lib" if path.len() == 1 => path.clear(),
        "mod" => {
            path.pop();
        }
        _ => {}
    }
    Some(path)
}

fn child(module: &[String], name: &str) -> ModulePath {
    inner(module, &[name.to_owned()])
}

fn inner(module: &[String], inside: &[String]) -> ModulePath {
    [module, inside].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The imports as `file:line -> file`, and `context -> context` where they lead out of the context.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, String)> = files
            .iter()
            .map(|(path, text)| (format!("src/{path}"), (*text).to_owned()))
            .collect();
        let mut shown = Vec::new();
        for import in imports("src/", &files) {
            let from = format!("{}:{}", import.file.trim_start_matches("src/"), import.line);
            if let Some(to) = &import.used_file {
                shown.push(format!("{from} -> {}", to.trim_start_matches("src/")));
            }
            shown.extend(
                import
                    .used_contexts
                    .iter()
                    .map(|used| format!("{} -> {used}", import.context)),
            );
        }
        shown
    }

    #[test]
    fn imports_lead_to_the_file_that_defines_the_name() {
        let files = [
            ("lib.rs", "pub mod a;\npub mod b;\n"),
            (
                "a/mod.rs",
                "mod x;\nmod y;\npub use x::{X, X as Renamed};\npub use y::*;\npub struct Own;\n",
            ),
            ("a/x.rs", "use super::{\n    Own,\n    Y,\n};\npub struct X;\n"),
            ("a/y.rs", "use crate::a::Renamed;\nuse serde::X;\npub enum Y {}\n"),
            ("b.rs", "fn b(_: crate::a::X<Y>) {}\n"),
        ];
        let expected = [
            "a/x.rs:2 -> a/mod.rs",
            "a/x.rs:3 -> a/y.rs",
            "a/y.rs:1 -> a/x.rs",
            "b.rs:1 -> a/x.rs",
            "b -> a",
        ];
        assert_eq!(found(&files), expected);
    }

    #[test]
    fn reexport_of_another_context_counts_for_both() {
        let files = [
            ("a/mod.rs", "pub use crate::b::B;\n"),
            ("b.rs", "pub struct B;\n"),
            ("c.rs", "use crate::a::B;\n"),
        ];
        let expected = ["a/mod.rs:1 -> b.rs", "a -> b", "c.rs:1 -> b.rs", "c -> a", "c -> b"];
        assert_eq!(found(&files), expected);
    }

    #[test]
    fn mod_file_uses_a_child_if_it_needs_the_name() {
        let child = ("a/x.rs", "pub fn x() {}\n");
        assert_eq!(
            found(&[("a/mod.rs", "pub(crate) use x::x;\n"), child]),
            Vec::<String>::new()
        );
        let expected = ["a/mod.rs:1 -> a/x.rs"];
        assert_eq!(
            found(&[("a/mod.rs", "pub use x::x;\nfn a() { x() }\n"), child]),
            expected
        );
        assert_eq!(found(&[("a/mod.rs", "fn a() { x::x() }\n"), child]), expected);
        assert_eq!(found(&[("a/mod.rs", "use self::x::x;\n"), child]), expected);
    }

    #[test]
    fn imported_module_counts_where_its_names_are_used() {
        let files = [
            ("a/mod.rs", "mod x;\nmod y;\n"),
            ("a/x.rs", "use super::y;\nfn x() { y::y() }\n"),
            (
                "a/y.rs",
                "pub fn y() {}\npub mod inside { use super::y; fn z() { super::super::x::x() } }\n",
            ),
        ];
        assert_eq!(found(&files), ["a/x.rs:2 -> a/y.rs", "a/y.rs:2 -> a/x.rs"]);
    }

    #[test]
    fn tests_texts_and_visibilities_are_no_imports() {
        let files = [
            (
                "a/mod.rs",
                "mod x;\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nuse x::X;\n",
            ),
            (
                "a/x.rs",
                "//! super::y::Y\npub(in crate::b) struct X;\n#[cfg(test)]\nmod tests { use crate::b::B; }\n",
            ),
            ("a/tests.rs", "use crate::b::B;\n"),
            ("a/tests/more.rs", "use crate::b::B;\n"),
            (
                "b.rs",
                "pub struct B;\n#[cfg(any(test, feature = \"mocks\"))]\nfn b() { crate::a::x() }\n",
            ),
            ("main.rs", "use crate::b::B;\n"),
        ];
        assert_eq!(found(&files), Vec::<String>::new());
    }
}
