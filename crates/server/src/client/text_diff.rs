//! A line-based diff.

/// Most pairs of lines that are compared; beyond, all lines between the first and the last difference are shown.
const PAIRS_MAX: usize = 16 << 20;
/// Lines shown around a difference.
const CONTEXT_LINES: usize = 3;

/// Returns the differences of two texts like `diff -u` without line numbers; empty if there are none.
pub fn diff(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same_start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - same_start;
    let same_end = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let (old_part, new_part) = (&old[same_start..old.len() - same_end], &new[same_start..new.len() - same_end]);
    if old_part.is_empty() && new_part.is_empty() {
        return String::new();
    }
    let mut lines: Vec<(char, &str)> = old[..same_start].iter().map(|line| (' ', *line)).collect();
    lines.extend(changes(old_part, new_part));
    lines.extend(old[old.len() - same_end..].iter().map(|line| (' ', *line)));
    near_changes(&lines)
}

fn changes<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    let width = new.len() + 1;
    if (old.len() + 1).saturating_mul(width) > PAIRS_MAX {
        let removed = old.iter().map(|line| ('-', *line));
        return removed.chain(new.iter().map(|line| ('+', *line))).collect();
    }
    // Length of the longest common subsequence of the rests, for each pair of positions.
    let mut common = vec![0_u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = if old[i] == new[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            found.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && (j == new.len() || common[(i + 1) * width + j] >= common[i * width + j + 1]) {
            found.push(('-', old[i]));
            i += 1;
        } else {
            found.push(('+', new[j]));
            j += 1;
        }
    }
    found
}

fn near_changes(lines: &[(char, &str)]) -> String {
    let mut is_shown = vec![false; lines.len()];
    for (at, _) in lines.iter().enumerate().filter(|(_, (kind, _))| *kind != ' ') {
        let end = (at + CONTEXT_LINES + 1).min(lines.len());
        is_shown[at.saturating_sub(CONTEXT_LINES)..end].fill(true);
    }
    let (mut out, mut is_gap) = (String::new(), true);
    for ((kind, line), is_shown) in lines.iter().zip(is_shown) {
        if is_shown {
            if is_gap {
                out.push_str("@@\n");
            }
            out.push(*kind);
            out.push_str(line);
            out.push('\n');
        }
        is_gap = !is_shown;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diff_shows_changed_lines_among_their_neighbours() {
        assert_eq!(diff("a\nb\n", "a\nb\n"), "");
        let (old, new) = ("1\n2\n3\n4\n5\n6\n7\n8\n9", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n10");
        assert_eq!(diff(old, new), "@@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n 9\n+10\n");
        assert_eq!(diff("", "x"), "@@\n+x\n");
    }
}
