//! Words, signs and literals of Rust source, and the functions, `use` declarations and paths among them.
//!
//! It reads tokens and no syntax tree: a tree has no paths inside macro calls.

use proc_macro2::{Delimiter, Spacing, Span, TokenStream, TokenTree};

/// A word, a literal, a `::` or a single sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) line: usize,
    pub(super) text: String,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// Line of the word `fn`, from 1.
    pub(super) line: usize,
    /// Number of lines from `fn` to the closing brace, inclusive.
    pub(super) lines: usize,
}

/// A function with the attribute `#[test]`, or one whose path ends in `test` (`#[tokio::test]`).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TestFunction {
    pub(super) name: String,
    pub(super) ignored: bool,
}

/// A path as it is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WrittenPath {
    pub(super) line: usize,
    pub(super) path: Vec<String>,
    /// The modules inside the file (`mod name { ... }`) that contain it.
    pub(super) inside: Vec<String>,
}

/// A name that a `use` declaration imports. A glob has the name `*`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DeclaredUse {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) path: Vec<String>,
    pub(super) inside: Vec<String>,
    pub(super) public: bool,
}

/// Whether the source can be read as tokens. The rules find nothing in source that cannot.
pub(super) fn is_readable(source: &str) -> bool {
    source.parse::<TokenStream>().is_ok()
}

/// The tokens of Rust source without its comments; doc comments are attributes. Empty if the source is malformed.
pub(super) fn tokens(source: &str) -> Vec<Token> {
    let mut found = Vec::new();
    flatten(source.parse().unwrap_or_default(), &mut found);
    found
}

fn flatten(stream: TokenStream, found: &mut Vec<Token>) {
    let is_colon = |tree: &TokenTree| matches!(tree, TokenTree::Punct(sign) if sign.as_char() == ':');
    let token = |span: Span, text: &str| Token {
        line: span.start().line,
        text: text.to_owned(),
    };
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        match &tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace | Delimiter::None => ("{", "}"),
                };
                found.push(token(group.span_open(), open));
                flatten(group.stream(), found);
                found.push(token(group.span_close(), close));
            }
            TokenTree::Punct(sign)
                if is_colon(&tree) && sign.spacing() == Spacing::Joint && trees.next_if(is_colon).is_some() =>
            {
                found.push(token(sign.span(), "::"));
            }
            other => found.push(token(other.span(), &other.to_string())),
        }
    }
}

/// Every string literal as it is written.
pub(super) fn strings(tokens: &[Token]) -> impl Iterator<Item = &Token> {
    let is_string = |token: &&Token| token.text.starts_with(['"', 'r']) && token.text.ends_with(['"', '#']);
    tokens.iter().filter(is_string)
}

/// Every function with a body.
pub(super) fn functions(tokens: &[Token]) -> Vec<Function> {
    let words = tokens.iter().enumerate().filter(|(_, token)| token.text == "fn");
    let function = |(at, word): (usize, &Token)| {
        let name = tokens.get(at + 1).filter(|token| token.text.starts_with(is_word))?;
        let end = tokens.get(end_of_item(tokens, at) - 1)?;
        (end.text == "}").then(|| Function {
            name: name.text.clone(),
            line: word.line,
            lines: end.line - word.line + 1,
        })
    };
    words.filter_map(function).collect()
}

/// Every test function.
pub(super) fn test_functions(tokens: &[Token]) -> Vec<TestFunction> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let (mut is_test, mut ignored) = (false, false);
        let mut after = at;
        while let Some(end) = end_of_attribute(tokens, after) {
            let mut path = texts(tokens, after + 2, end - 1).take_while(|word| *word != "(" && *word != "=");
            let last = path.clone().last();
            is_test |= last == Some("test");
            ignored |= path.next() == Some("ignore");
            after = end;
        }
        if is_test {
            let mut words = texts(tokens, after, tokens.len()).skip_while(|word| *word != "fn");
            let name = words.nth(1).unwrap_or_default().to_owned();
            found.push(TestFunction { name, ignored });
        }
        at = after.max(at + 1);
    }
    found
}

/// The tokens of the value of every constant of this name.
pub(super) fn constants<'a>(tokens: &'a [Token], name: &str) -> Vec<Vec<&'a str>> {
    let declares = |at: &usize| text(tokens, *at) == "const" && text(tokens, at + 1) == name;
    let value = |at: usize| {
        let item = texts(tokens, at, end_of_item(tokens, at) - 1);
        item.skip_while(|word| *word != "=").skip(1).collect()
    };
    (0..tokens.len()).filter(declares).map(value).collect()
}

/// Removes each item with `#[cfg(test)]` or the like. Returns the names of removed `mod name;` as well.
pub(super) fn without_tests(tokens: Vec<Token>) -> (Vec<Token>, Vec<String>) {
    let mut rest = Vec::with_capacity(tokens.len());
    let mut modules = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let Some(mut start) = end_of_attribute(&tokens, at).filter(|end| is_for_tests(&tokens, at, *end)) else {
            rest.push(token.clone());
            at += 1;
            continue;
        };
        while let Some(end) = end_of_attribute(&tokens, start) {
            start = end;
        }
        at = end_of_item(&tokens, start);
        let words: Vec<&str> = texts(&tokens, start, at).collect();
        if let [.., "mod", name, ";"] = words.as_slice() {
            modules.push((*name).to_owned());
        }
    }
    (rest, modules)
}

/// Takes the `use` declarations out.
pub(super) fn separate_uses(tokens: Vec<Token>) -> (Vec<Token>, Vec<DeclaredUse>) {
    let mut rest = Vec::with_capacity(tokens.len());
    let mut uses = Vec::new();
    let inside = inner_modules(&tokens);
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        // `use<'a>` is a bound.
        if token.text != "use" || text(&tokens, at + 1) == "<" {
            rest.push(token.clone());
            at += 1;
            continue;
        }
        let before = at.checked_sub(1).map_or("", |before| text(&tokens, before));
        // `pub use`, or `pub(crate) use`.
        let public = before == "pub" || before == ")";
        let first = uses.len();
        at += 1;
        read_use(&tokens, &mut at, &[], &mut uses);
        for declared in uses.iter_mut().skip(first) {
            declared.public = public;
            declared.inside.clone_from(inside.get(at).unwrap_or(&Vec::new()));
        }
    }
    (rest, uses)
}

/// Reads one branch of a `use` tree, up to and without its comma, brace or semicolon.
fn read_use(tokens: &[Token], at: &mut usize, prefix: &[String], uses: &mut Vec<DeclaredUse>) {
    let mut path = prefix.to_vec();
    let mut alias = None;
    while let Some(token) = tokens.get(*at) {
        match token.text.as_str() {
            "{" => {
                *at += 1;
                while !matches!(text(tokens, *at), "}" | "") {
                    read_use(tokens, at, &path, uses);
                    *at += usize::from(text(tokens, *at) == ",");
                }
                *at += 1;
                return;
            }
            "," | "}" | ";" => break,
            "::" => {}
            "as" => {
                alias = Some(text(tokens, *at + 1).to_owned());
                *at += 1;
            }
            word => path.push(word.to_owned()),
        }
        *at += 1;
    }
    // `use a::{self}`.
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let line = tokens.get(at.saturating_sub(1)).map_or(0, |token| token.line);
    if let Some(name) = alias.or_else(|| path.last().cloned()) {
        uses.push(DeclaredUse {
            line,
            name,
            path,
            inside: Vec::new(),
            public: false,
        });
    }
}

/// Every path of two words or more.
pub(super) fn paths(tokens: &[Token]) -> Vec<WrittenPath> {
    let inside = inner_modules(tokens);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let mut path = vec![token.text.clone()];
        let start = at;
        at += 1;
        if !token.text.starts_with(is_word) {
            continue;
        }
        while text(tokens, at) == "::" && text(tokens, at + 1).starts_with(is_word) {
            path.push(text(tokens, at + 1).to_owned());
            at += 2;
        }
        let after = |back: usize| start.checked_sub(back).map_or("", |before| text(tokens, before));
        // Not `<T>::name`, and not `pub(in crate::a)`.
        let visibility = after(1) == "in" && after(2) == "(";
        if path.len() > 1 && after(1) != "::" && !visibility {
            found.push(WrittenPath {
                line: token.line,
                path,
                inside: inside.get(start).cloned().unwrap_or_default(),
            });
        }
    }
    found
}

/// Whether the tokens declare an item of this name.
pub(super) fn defines(tokens: &[Token], name: &str) -> bool {
    const KINDS: &[&str] = &[
        "fn", "struct", "enum", "trait", "type", "const", "static", "mod", "union",
    ];
    tokens.windows(2).any(|pair| match pair {
        [kind, named] => named.text == name && KINDS.contains(&kind.text.as_str()),
        _ => false,
    })
}

/// For each token the modules inside the file that contain it.
fn inner_modules(tokens: &[Token]) -> Vec<Vec<String>> {
    let mut open: Vec<(String, usize)> = Vec::new();
    let mut depth = 0_usize;
    let mut inside = Vec::with_capacity(tokens.len());
    for (at, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "{" => {
                depth += 1;
                if at >= 2 && text(tokens, at - 2) == "mod" {
                    open.push((text(tokens, at - 1).to_owned(), depth));
                }
            }
            "}" => {
                open.retain(|(_, opened)| *opened < depth);
                depth = depth.saturating_sub(1);
            }
            _ => {}
        }
        inside.push(open.iter().map(|(name, _)| name.clone()).collect());
    }
    inside
}

/// The exclusive end of the attribute at this position. `None`: none begins here.
fn end_of_attribute(tokens: &[Token], at: usize) -> Option<usize> {
    if text(tokens, at) != "#" || text(tokens, at + 1) != "[" {
        return None;
    }
    let mut depth = 0_usize;
    let closes = |token: &Token| {
        depth += usize::from(token.text == "[");
        depth -= usize::from(token.text == "]");
        depth == 0
    };
    let length = tokens.iter().skip(at + 1).position(closes)?;
    Some(at + length + 2)
}

fn is_for_tests(tokens: &[Token], at: usize, end: usize) -> bool {
    let mut words = texts(tokens, at, end);
    text(tokens, at + 2) == "cfg" && words.clone().any(|word| word == "test") && words.all(|word| word != "not")
}

/// The exclusive end of the item: its semicolon, its closing brace, or the end of what contains it.
fn end_of_item(tokens: &[Token], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" if depth == 0 => return at,
            "}" if depth == 1 => return at + 1,
            "}" | ")" | "]" => depth -= 1,
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

fn text(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| token.text.as_str())
}

fn texts(tokens: &[Token], start: usize, end: usize) -> impl Iterator<Item = &str> + Clone {
    tokens
        .iter()
        .skip(start)
        .take(end.saturating_sub(start))
        .map(|token| token.text.as_str())
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(source: &str) -> Vec<(String, usize, usize)> {
        functions(&tokens(source))
            .into_iter()
            .map(|f| (f.name, f.line, f.lines))
            .collect()
    }

    #[test]
    fn strings_are_literals_and_not_comments() {
        let tokens = tokens("// \"a\"\nf('\"', \"b\\\"\nc\", r#\"d\"#, x, r);\n");
        let found: Vec<(usize, &str)> = strings(&tokens)
            .map(|found| (found.line, found.text.as_str()))
            .collect();
        assert_eq!(found, [(2, "\"b\\\"\nc\""), (3, "r#\"d\"#")]);
    }

    #[test]
    fn tokens_leave_out_comments_and_join_paths() {
        let texts = |source: &str| tokens(source).into_iter().map(|token| token.text).collect::<Vec<_>>();
        assert_eq!(
            texts("a::b /* c /* d */ */ : ::e // f"),
            ["a", "::", "b", ":", "::", "e"]
        );
        assert_eq!(texts("&'a r#fn"), ["&", "'", "a", "r#fn"]);
        assert_eq!(texts("}"), Vec::<String>::new());
    }

    #[test]
    fn functions_are_found_with_their_length() {
        let source = "fn a() {}\n\nimpl X {\n    async fn b<'a>(\n        &'a self,\n        n: [u8; 4],\n    ) {\n        x();\n    }\n}\n";
        assert_eq!(lengths(source), [("a".to_owned(), 1, 1), ("b".to_owned(), 4, 6)]);
    }

    #[test]
    fn braces_in_texts_do_not_count() {
        let source = "fn a() {\n    let _ = \"}\"; // }\n    let _ = '}';\n    let _ = r#\"}\"}\"#;\n}\nfn b() {\n}\n";
        assert_eq!(lengths(source), [("a".to_owned(), 1, 5), ("b".to_owned(), 6, 2)]);
    }

    #[test]
    fn test_functions_are_recognized_by_their_attributes() {
        let source = "#[test]\nfn a() {}\n/// x\n#[tokio::test(start_paused = true)]\nasync fn b() {}\nfn c() {}\n\
                      #[test]\n#[ignore = \"slow\"]\nfn d() {}\n#[cfg(test)]\nmod tests {\n#[test]\nfn e() {}\n}\n\
                      proptest! {\n#![config(x)]\n#[test]\nfn f(n in 0..4) {}\n}\n// #[test] fn g() {}\n";
        let found = test_functions(&tokens(source)).into_iter();
        let found: Vec<(String, bool)> = found.map(|test| (test.name, test.ignored)).collect();
        let expected = [("a", false), ("b", false), ("d", true), ("e", false), ("f", false)];
        assert_eq!(found, expected.map(|(name, ignored)| (name.to_owned(), ignored)));
    }

    #[test]
    fn constants_are_found_with_their_value() {
        let source = "const N: usize = 5;\nfn a() {\n    const N: [u8; 2] = [N, 3];\n}\nconst M: u8 = N;\n";
        assert_eq!(
            constants(&tokens(source), "N"),
            [vec!["5"], vec!["[", "N", ",", "3", "]"]]
        );
    }

    #[test]
    fn types_and_required_methods_have_no_length() {
        assert_eq!(
            lengths("type F = fn(u8) -> u8;\ntrait T {\n    fn a(&self) -> [u8; 2];\n}\n"),
            []
        );
    }

    #[test]
    fn inner_functions_count_too() {
        let source = "fn a() {\n    fn b() {\n    }\n}\n";
        assert_eq!(lengths(source), [("a".to_owned(), 1, 4), ("b".to_owned(), 2, 2)]);
    }
}
