//! The difference between two texts, line by line, for people. Tokens in it are masked, and lines that stay are not shown:
//! they may hold the secrets of other servers.

const MASK: &str = "***";
/// Of longer lines, as in a file without line ends, only the changed part is shown.
const LONG: usize = 200;

/// Formats the lines that are removed (`-`) and added (`+`), with their numbers. The texts differ in few places, so what is
/// equal at both ends is found first.
pub fn lines(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let before = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let rest = old.len().min(new.len()) - before;
    let after = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(old, new)| old == new).count();
    let changed = |sign: char, lines: &[&str]| -> Vec<String> {
        let numbered = lines.iter().zip(before + 1..);
        numbered.map(|(line, number)| format!("{number:>5} {sign} {}", masked(line))).collect()
    };
    let (old, new) = (&old[before..old.len() - after], &new[before..new.len() - after]);
    if let ([old], [new]) = (old, new)
        && new.len() > LONG
    {
        let (old, new) = middles(old, new);
        return [changed('-', &[&old]), changed('+', &[&new])].concat().join("\n");
    }
    let (removed, added) = (changed('-', old), changed('+', new));
    [removed, added].concat().join("\n")
}

/// Returns the parts in which two lines differ.
fn middles(old: &str, new: &str) -> (String, String) {
    let before: usize =
        old.chars().zip(new.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    let (old, new) = (&old[before..], &new[before..]);
    let equal = old.chars().rev().zip(new.chars().rev()).take_while(|(a, b)| a == b);
    let after: usize = equal.map(|(a, _)| a.len_utf8()).sum();
    let shown = |line: &str| format!("… {} …", &line[..line.len() - after]);
    (shown(old), shown(new))
}

/// Masks what follows `Bearer ` or the name of the variable with the token.
fn masked(line: &str) -> String {
    let mut shown = line.to_owned();
    for start in ["Bearer ", "TOOLGATE_TOKEN\": \""] {
        if let Some(at) = shown.find(start) {
            let begin = at + start.len();
            let end = shown[begin..].find('"').map_or(shown.len(), |end| begin + end);
            shown.replace_range(begin..end, MASK);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_lines_are_shown_and_tokens_are_not() {
        let old = "{\n  \"key\": \"secret\",\n  \"a\": 1\n}\n";
        let new = "{\n  \"key\": \"secret\",\n  \"a\": 1,\n  \"h\": \"Bearer abc\"\n}\n";
        let shown = "    3 -   \"a\": 1\n    3 +   \"a\": 1,\n    4 +   \"h\": \"Bearer ***\"";
        assert_eq!(lines(old, new), shown);
        assert_eq!(lines("", "a\n"), "    1 + a");
        assert_eq!(lines("a\nb\n", "a\n"), "    2 - b");
        assert_eq!(lines("a\na\n", "a\na\na\n"), "    3 + a");
        let long = "x".repeat(LONG);
        assert_eq!(
            lines(&format!("{{{long}}}"), &format!("{{{long}, new}}")),
            "    1 - …  …\n    1 + … , new …"
        );
        assert_eq!(masked("  \"TOOLGATE_TOKEN\": \"abc\""), "  \"TOOLGATE_TOKEN\": \"***\"");
    }
}
