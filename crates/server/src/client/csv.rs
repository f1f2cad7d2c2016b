//! CSV by RFC 4180: quoted cells may hold commas, quotes and line breaks.

/// A row with the line on which it begins.
#[derive(Debug, PartialEq)]
pub struct CsvRow {
    /// From 1.
    pub line: usize,
    /// The contents of its cells.
    pub cells: Vec<String>,
}

/// Parses the rows of a text, without empty lines. Fails with the line of a misplaced quote.
pub fn rows(text: &str) -> Result<Vec<CsvRow>, (usize, &'static str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut characters = text.chars().peekable();
    let (mut found, mut line) = (Vec::new(), 1);
    while characters.peek().is_some() {
        let mut row = CsvRow { line, cells: Vec::new() };
        loop {
            let (cell, end) = cell(&mut characters, &mut line)?;
            row.cells.push(cell);
            if end != Some(',') {
                break;
            }
        }
        if row.cells.iter().any(|cell| !cell.is_empty()) {
            found.push(row);
        }
    }
    Ok(found)
}

/// Parses a cell and the comma or line break after it.
fn cell(
    characters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    line: &mut usize,
) -> Result<(String, Option<char>), (usize, &'static str)> {
    let mut cell = String::new();
    let is_quoted = characters.next_if_eq(&'"').is_some();
    if is_quoted {
        let begin = *line;
        loop {
            match characters.next() {
                Some('"') if characters.next_if_eq(&'"').is_some() => cell.push('"'),
                Some('"') => break,
                Some(character) => {
                    *line += usize::from(character == '\n');
                    cell.push(character);
                }
                None => return Err((begin, "a quote is opened and never closed")),
            }
        }
    }
    loop {
        match characters.next() {
            Some('\r') if characters.peek() == Some(&'\n') => {}
            Some('\n') => {
                *line += 1;
                return Ok((cell, Some('\n')));
            }
            end @ (Some(',') | None) => return Ok((cell, end)),
            Some(_) if is_quoted => return Err((*line, "something stands behind a closing quote")),
            Some('"') => return Err((*line, "a quote stands within a cell that does not begin with one")),
            Some(character) => cell.push(character),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn cells_are_read_with_quotes_commas_and_line_breaks() {
        let read = rows("\u{feff}a,b\r\n\"1,\"\"x\"\"\n2\",\n\n,\n é ,\"\"").unwrap();
        let row = |line, cells: [&str; 2]| CsvRow { line, cells: cells.map(str::to_owned).to_vec() };
        assert_eq!(read, [row(1, ["a", "b"]), row(2, ["1,\"x\"\n2", ""]), row(6, [" é ", ""])]);
    }

    #[test]
    fn misplaced_quote_is_named_by_its_line() {
        assert_eq!(rows("a\n\"b\n").unwrap_err().0, 2);
        assert_eq!(rows("a\n\"b\"c\n").unwrap_err().0, 2);
        assert_eq!(rows("a\nb\"\n").unwrap_err().0, 2);
    }
}
