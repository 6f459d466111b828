//! Rust text with everything blanked that is not code, line by line as it was.

/// Blanks comments and the insides of literals, so that a word found is a word of code.
pub(super) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(&char) = chars.get(at) {
        let end = match char {
            '/' if chars.get(at + 1) == Some(&'/') => until(&chars, at, |c| c == '\n'),
            '/' if chars.get(at + 1) == Some(&'*') => block_comment(&chars, at),
            '"' => string(&chars, at + 1),
            'r' if !code.ends_with(is_word) || code.ends_with(['b', 'c']) => raw_string(&chars, at),
            '\'' => character(&chars, at),
            _ => at,
        };
        if end == at {
            code.push(char);
            at += 1;
        } else {
            blank(&mut code, chars.get(at..end).unwrap_or_default());
            at = end;
        }
    }
    code
}

/// Blanks each item behind a `#[cfg(test)]`.
pub(super) fn without_tests(code: &str) -> String {
    const GATE: &str = "#[cfg(test)]";
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some((before, gated)) = rest.split_once(GATE) {
        kept.push_str(before);
        let chars: Vec<char> = gated.chars().collect();
        let end = item_end(&chars);
        blank(&mut kept, chars.get(..end).unwrap_or_default());
        rest = gated.char_indices().nth(end).map_or("", |(byte, _)| gated.split_at(byte).1);
    }
    kept.push_str(rest);
    kept
}

pub(super) fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Keeps the line structure.
fn blank(code: &mut String, chars: &[char]) {
    code.extend(chars.iter().map(|&char| if char == '\n' { '\n' } else { ' ' }));
}

fn until(chars: &[char], from: usize, stop: impl Fn(char) -> bool) -> usize {
    chars.iter().skip(from).position(|&char| stop(char)).map_or(chars.len(), |offset| from + offset)
}

/// Block comments nest.
fn block_comment(chars: &[char], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_u32);
    while at < chars.len() {
        match (chars.get(at), chars.get(at + 1)) {
            (Some('/'), Some('*')) => (at, depth) = (at + 2, depth + 1),
            (Some('*'), Some('/')) => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

/// The end of a string whose first character is at `at`.
fn string(chars: &[char], mut at: usize) -> usize {
    while let Some(&char) = chars.get(at) {
        match char {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// The end of `r"..."` or `r#"..."#`, or `at` where this is no raw string.
fn raw_string(chars: &[char], at: usize) -> usize {
    let quote = until(chars, at + 1, |char| char != '#');
    if chars.get(quote) != Some(&'"') {
        return at;
    }
    let hashes = quote - at - 1;
    let closes = |end: &usize| {
        chars.get(*end) == Some(&'"')
            && chars.iter().skip(end + 1).take(hashes).filter(|&&char| char == '#').count()
                == hashes
    };
    (quote + 1..chars.len()).find(closes).map_or(chars.len(), |end| end + 1 + hashes)
}

/// The end of a character literal, or `at` for a lifetime.
fn character(chars: &[char], at: usize) -> usize {
    if chars.get(at + 1) == Some(&'\\') {
        return (until(chars, at + 3, |char| char == '\'') + 1).min(chars.len());
    }
    if chars.get(at + 2) == Some(&'\'') { at + 3 } else { at }
}

/// An item ends at its `;`, or with the brace that closes its first one.
fn item_end(chars: &[char]) -> usize {
    let mut depth = 0_u32;
    for (at, char) in chars.iter().enumerate() {
        match char {
            ';' if depth == 0 => return at + 1,
            '{' => depth += 1,
            '}' if depth <= 1 => return at + 1,
            '}' => depth -= 1,
            _ => {},
        }
    }
    chars.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let code = without_tests(&code_only(text));
        assert_eq!(code.lines().count(), text.lines().count(), "{code:?}");
        assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn comments_go() {
        check("a // b\nc /* d /* e */ f */ g\n//! h", "a c g");
    }

    #[test]
    fn literals_go() {
        check(r#"a("b \" c", 'd', '\'', b"e") f"#, "a( , , , b ) f");
        check("r#\"x \" y\"# z r\"q\" br\"p\"", "z b");
    }

    #[test]
    fn lifetimes_and_raw_identifiers_stay() {
        check("fn f<'a>(r#type: &'a str) -> &'a str {}", "fn f<'a>(r#type: &'a str) -> &'a str {}");
    }

    #[test]
    fn tests_go() {
        check("a\n#[cfg(test)]\nmod tests {\n  fn b() { c }\n}\nd", "a d");
        check("a\n#[cfg(test)]\nmod tests;\nd", "a d");
    }
}
