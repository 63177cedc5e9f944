//! A small scanner of Rust source: separates code from comments and literals, and measures the length of functions.
//!
//! It recognizes comments, strings, raw strings, characters and lifetimes, and nothing else. That is enough to find
//! words and match braces, and does not depend on the syntax of the language.

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// Line of the word `fn`, from 1.
    pub(super) line: usize,
    /// Number of lines from `fn` to the closing brace, inclusive.
    pub(super) lines: usize,
}

/// Replaces every comment and literal by spaces. Line numbers stay the same.
pub(super) fn mask(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut masked = String::with_capacity(source.len());
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        match end_of_text(&chars, at) {
            Some(end) => {
                let text = chars.get(at..end.min(chars.len())).unwrap_or_default();
                masked.extend(text.iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
                at = end;
            }
            None => {
                masked.push(c);
                at += 1;
            }
        }
    }
    masked
}

/// Returns every string literal as it is written, with the line on which it begins.
pub(super) fn strings(source: &str) -> Vec<(usize, String)> {
    let chars: Vec<char> = source.chars().collect();
    let mut found = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        let end = end_of_text(&chars, at).unwrap_or(at + 1).min(chars.len());
        let text = text_between(&chars, at, end);
        let newlines = text.matches('\n').count();
        if matches!(c, '"' | 'r') && text.ends_with(['"', '#']) {
            found.push((line, text));
        }
        line += newlines;
        at = end;
    }
    found
}

/// The exclusive end of the comment or literal at this position. `None`: none begins here.
fn end_of_text(chars: &[char], at: usize) -> Option<usize> {
    let next = |ahead: usize| chars.get(at + ahead).copied();
    match chars.get(at)? {
        '/' if next(1) == Some('/') => Some(find(chars, at, |c| c == '\n')),
        '/' if next(1) == Some('*') => Some(end_of_block_comment(chars, at)),
        '"' => Some(end_of_quoted(chars, at + 1, '"')),
        'r' => end_of_raw_string(chars, at),
        '\'' if next(1) == Some('\\') => Some(end_of_quoted(chars, at + 1, '\'')),
        // Anything else after a single quote is a lifetime or a label.
        '\'' if next(2) == Some('\'') => Some(at + 3),
        _ => None,
    }
}

fn find(chars: &[char], from: usize, predicate: impl Fn(char) -> bool) -> usize {
    chars
        .iter()
        .skip(from)
        .position(|&c| predicate(c))
        .map_or(chars.len(), |ahead| from + ahead)
}

/// The end of a block comment, which may contain nested ones.
fn end_of_block_comment(chars: &[char], from: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = from;
    while at < chars.len() {
        match (chars.get(at), chars.get(at + 1)) {
            (Some('/'), Some('*')) => depth += 1,
            (Some('*'), Some('/')) => depth = depth.saturating_sub(1),
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            break;
        }
    }
    at
}

/// The position after the next unescaped quote.
fn end_of_quoted(chars: &[char], from: usize, quote: char) -> usize {
    let mut at = from;
    while let Some(&c) = chars.get(at) {
        match c {
            '\\' => at += 2,
            _ if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// The end of a raw string (`r"..."`, `r#"..."#`). Of `br` and `cr` only the second letter is scanned here.
fn end_of_raw_string(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars.iter().skip(at + 1).take_while(|&&c| c == '#').count();
    let open = at + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let mut quote = open + 1;
    loop {
        quote = find(chars, quote, |c| c == '"');
        if chars.iter().skip(quote + 1).take(hashes).filter(|&&c| c == '#').count() == hashes {
            return Some(quote + 1 + hashes);
        }
        quote += 1;
        if quote >= chars.len() {
            return Some(chars.len());
        }
    }
}

/// Returns every function with a body. `masked` is the result of [`mask`].
pub(super) fn functions(masked: &str) -> Vec<Function> {
    let chars: Vec<char> = masked.chars().collect();
    let mut found = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        if !is_word(c) {
            line += usize::from(c == '\n');
            at += 1;
            continue;
        }
        let end = find(&chars, at, |c| !is_word(c));
        if text_between(&chars, at, end) == "fn"
            && let Some(function) = function(&chars, end, line)
        {
            found.push(function);
        }
        at = end;
    }
    found
}

/// Parses the function after a `fn`. `None` for a pointer type, which has no name, and a method without a body.
fn function(chars: &[char], after: usize, line: usize) -> Option<Function> {
    let start = find(chars, after, |c| !c.is_whitespace());
    let end = find(chars, start, |c| !is_word(c));
    if start == end {
        return None;
    }
    let mut round = 0_usize;
    let mut at = end;
    // The body is the first brace outside the signature's own brackets.
    loop {
        match chars.get(at)? {
            '(' | '[' => round += 1,
            ')' | ']' => round = round.saturating_sub(1),
            ';' if round == 0 => return None,
            '{' if round == 0 => break,
            _ => {}
        }
        at += 1;
    }
    let mut depth = 0_usize;
    let close = chars.iter().skip(at).position(|&c| {
        depth += usize::from(c == '{');
        depth -= usize::from(c == '}');
        depth == 0
    })?;
    let newlines = chars
        .iter()
        .skip(after)
        .take(at + close - after)
        .filter(|&&c| c == '\n')
        .count();
    Some(Function {
        name: text_between(chars, start, end),
        line,
        lines: newlines + 1,
    })
}

fn text_between(chars: &[char], start: usize, end: usize) -> String {
    chars.iter().skip(start).take(end - start).collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(source: &str) -> Vec<(String, usize, usize)> {
        functions(&mask(source))
            .into_iter()
            .map(|f| (f.name, f.line, f.lines))
            .collect()
    }

    #[test]
    fn strings_are_literals_and_not_comments() {
        let found = strings("// \"a\"\nf('\"', \"b\\\"\nc\", r#\"d\"#, x, r);\n");
        let found: Vec<(usize, &str)> = found.iter().map(|(line, text)| (*line, text.as_str())).collect();
        assert_eq!(found, [(2, "\"b\\\"\nc\""), (3, "r#\"d\"#")]);
    }

    #[test]
    fn mask_replaces_texts_by_spaces() {
        let spaces = |count: usize| " ".repeat(count);
        assert_eq!(mask("a // b\nc"), format!("a {}\nc", spaces(4)));
        assert_eq!(
            mask("a /* b /* c */\n d */ e"),
            format!("a {}\n{} e", spaces(12), spaces(5))
        );
        assert_eq!(mask(r#"x("a\"b{", y)"#), format!("x({}, y)", spaces(7)));
        assert_eq!(mask("r#\"a\"b{\"# + c"), format!("{} + c", spaces(9)));
        assert_eq!(mask(r##"br"a\" + c"##), format!("b{} + c", spaces(5)));
        assert_eq!(
            mask(r"'{' '\'' '\u{7b}' &'a str 'l: x"),
            format!("{} &'a str 'l: x", spaces(17))
        );
        assert_eq!(mask("r#fn"), "r#fn");
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
