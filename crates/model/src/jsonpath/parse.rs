//! The grammar of RFC 9535, parsed from left to right; only white space is ever read twice.

use super::regexp::Pattern;
use super::{Comparable, Comparison, Logical, PATH_BYTES_MAX, PATH_DEPTH_MAX, PathFault, Query, Segment, Selector};
use crate::json::{self, Json};

/// Largest integer in a path, positive or negative (RFC 9535, 2.1; RFC 7493).
const INTEGER_MAX: i64 = (1 << 53) - 1;

type Result<T> = std::result::Result<T, PathFault>;

/// Reads a whole path.
pub(super) fn path(text: &str) -> Result<Vec<Segment>> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    if text.len() > PATH_BYTES_MAX {
        return Err(parser.fault(format!("a path may be at most {PATH_BYTES_MAX} bytes long")));
    }
    if !parser.eat("$") {
        return Err(parser.fault("a path begins with $"));
    }
    let segments = parser.segments()?;
    if parser.at < text.len() { Err(parser.fault("expected a segment or the end")) } else { Ok(segments) }
}

/// An operand in a filter before it is known whether it is compared or tested.
enum Operand {
    Literal(Json<'static>),
    Query(Query),
    /// A function that returns a value.
    Value(Comparable),
    /// A function that returns true or false.
    Logical(Logical),
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn fault(&self, what: impl Into<String>) -> PathFault {
        PathFault { what: what.into(), at: self.at }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn eat(&mut self, token: &str) -> bool {
        let is_next = self.rest().starts_with(token);
        self.at += if is_next { token.len() } else { 0 };
        is_next
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) { Ok(()) } else { Err(self.fault(format!("expected '{token}'"))) }
    }

    fn skip_blank(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    /// Parses something that is nested one level deeper.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == PATH_DEPTH_MAX {
            return Err(self.fault(format!("nested deeper than {PATH_DEPTH_MAX}")));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn segments(&mut self) -> Result<Vec<Segment>> {
        let mut segments = Vec::new();
        loop {
            let before = self.at;
            self.skip_blank();
            if self.rest().starts_with('[') {
                segments.push(Segment { descendant: false, selectors: self.bracketed()? });
            } else if self.eat("..") {
                let is_bracket = self.rest().starts_with('[');
                let selectors = if is_bracket { self.bracketed()? } else { vec![self.shorthand()?] };
                segments.push(Segment { descendant: true, selectors });
            } else if self.eat(".") {
                segments.push(Segment { descendant: false, selectors: vec![self.shorthand()?] });
            } else {
                self.at = before;
                return Ok(segments);
            }
        }
    }

    /// Parses `*` or a name without quotes.
    fn shorthand(&mut self) -> Result<Selector> {
        if self.eat("*") {
            return Ok(Selector::Wildcard);
        }
        let first = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
        let rest = self.rest();
        if !rest.starts_with(first) {
            return Err(self.fault("expected a name or '*'"));
        }
        let end = rest.find(|c: char| !first(c) && !c.is_ascii_digit()).unwrap_or(rest.len());
        self.at += end;
        Ok(Selector::Name(rest[..end].to_owned()))
    }

    fn bracketed(&mut self) -> Result<Vec<Selector>> {
        self.deeper(|parser| {
            parser.expect("[")?;
            let mut selectors = Vec::new();
            loop {
                parser.skip_blank();
                selectors.push(parser.selector()?);
                parser.skip_blank();
                if parser.eat("]") {
                    return Ok(selectors);
                }
                if !parser.eat(",") {
                    return Err(parser.fault("expected ',' or ']'"));
                }
            }
        })
    }

    fn selector(&mut self) -> Result<Selector> {
        match self.peek() {
            Some('\'' | '"') => self.string().map(Selector::Name),
            Some('*') => {
                self.at += 1;
                Ok(Selector::Wildcard)
            }
            Some('?') => {
                self.at += 1;
                self.skip_blank();
                self.any().map(Selector::Filter)
            }
            Some('-' | '0'..='9' | ':') => self.index_or_slice(),
            Some('(') => Err(self.fault("scripts are not allowed: expected a selector")),
            _ => Err(self.fault("expected a selector")),
        }
    }

    fn index_or_slice(&mut self) -> Result<Selector> {
        let start = self.integer_if()?;
        let after_start = self.at;
        self.skip_blank();
        if !self.eat(":") {
            self.at = after_start;
            return start.map(Selector::Index).ok_or_else(|| self.fault("expected an integer"));
        }
        self.skip_blank();
        let end = self.integer_if()?;
        self.skip_blank();
        let mut step = None;
        if self.eat(":") {
            self.skip_blank();
            step = self.integer_if()?;
        }
        Ok(Selector::Slice { start, end, step: step.unwrap_or(1) })
    }

    /// Parses an integer, if one is next: no leading zeros, no `-0`, exact as a double.
    fn integer_if(&mut self) -> Result<Option<i64>> {
        let rest = self.rest();
        let digits = rest.strip_prefix('-').unwrap_or(rest);
        let count = digits.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 && digits.len() == rest.len() {
            return Ok(None);
        }
        let text = &rest[..rest.len() - digits.len() + count];
        let sound = count > 0 && (text == "0" || !digits.starts_with('0'));
        let value = text.parse::<i64>().ok().filter(|value| sound && value.abs() <= INTEGER_MAX);
        let value = value.ok_or_else(|| self.fault("expected an integer without leading zeros, within 2^53"))?;
        self.at += text.len();
        Ok(Some(value))
    }

    /// Parses a string in quotes of either kind.
    fn string(&mut self) -> Result<String> {
        let quote = if self.eat("'") { '\'' } else { '"' };
        if quote == '"' {
            self.expect("\"")?;
        }
        let mut text = String::new();
        loop {
            let Some(next) = self.peek() else { return Err(self.fault("a string does not end")) };
            match next {
                '\0'..='\u{1f}' => return Err(self.fault("a control character in a string")),
                '\\' => text.push(self.escape(quote)?),
                _ => {
                    self.at += next.len_utf8();
                    if next == quote {
                        return Ok(text);
                    }
                    text.push(next);
                }
            }
        }
    }

    /// Parses an escape: those of JSON, and the quote of the string.
    fn escape(&mut self, quote: char) -> Result<char> {
        let rest = self.rest().as_bytes();
        let plain = match rest.get(1) {
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'/') => '/',
            Some(b'\\') => '\\',
            Some(b'u') => return self.unicode_escape(),
            Some(byte) if char::from(*byte) == quote => quote,
            _ => return Err(self.fault("an unknown escape")),
        };
        self.at += 2;
        Ok(plain)
    }

    fn unicode_escape(&mut self) -> Result<char> {
        let first = self.hex4()?;
        let mut code = first;
        if (0xd800..0xdc00).contains(&first) && self.rest().starts_with("\\u") {
            let second = self.hex4()?;
            let pair = second.checked_sub(0xdc00).filter(|low| *low < 0x400);
            code = pair.map_or(first, |low| 0x10000 + ((first - 0xd800) << 10) + low);
        }
        char::from_u32(code).ok_or_else(|| self.fault("a lone surrogate"))
    }

    /// Parses the four digits of `\uXXXX`.
    fn hex4(&mut self) -> Result<u32> {
        let digits = self.rest().get(2..6).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let value = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let value = value.ok_or_else(|| self.fault("expected four hexadecimal digits"))?;
        self.at += 6;
        Ok(value)
    }

    /// Parses `a || b`.
    fn any(&mut self) -> Result<Logical> {
        self.deeper(|parser| {
            let mut terms = vec![parser.all()?];
            while parser.eat_after_blank("||") {
                parser.skip_blank();
                terms.push(parser.all()?);
            }
            Ok(if terms.len() == 1 { terms.remove(0) } else { Logical::Any(terms) })
        })
    }

    /// Parses `a && b`.
    fn all(&mut self) -> Result<Logical> {
        let mut terms = vec![self.basic()?];
        while self.eat_after_blank("&&") {
            self.skip_blank();
            terms.push(self.basic()?);
        }
        Ok(if terms.len() == 1 { terms.remove(0) } else { Logical::All(terms) })
    }

    fn eat_after_blank(&mut self, token: &str) -> bool {
        let before = self.at;
        self.skip_blank();
        if self.eat(token) {
            return true;
        }
        self.at = before;
        false
    }

    /// Parses parentheses, a test or a comparison.
    fn basic(&mut self) -> Result<Logical> {
        if self.eat("!") {
            self.skip_blank();
            let operand = if self.peek() == Some('(') { self.parenthesised()? } else { self.test()? };
            return Ok(Logical::Not(Box::new(operand)));
        }
        if self.peek() == Some('(') {
            return self.parenthesised();
        }
        let left = self.operand()?;
        let before = self.at;
        self.skip_blank();
        if let Some(comparison) = self.comparison() {
            let left = self.compared(left)?;
            self.skip_blank();
            let right = self.operand()?;
            return Ok(Logical::Compared(left, comparison, self.compared(right)?));
        }
        self.at = before;
        self.tested(left)
    }

    fn parenthesised(&mut self) -> Result<Logical> {
        self.expect("(")?;
        self.skip_blank();
        let inner = self.any()?;
        self.skip_blank();
        self.expect(")")?;
        Ok(inner)
    }

    fn test(&mut self) -> Result<Logical> {
        let operand = self.operand()?;
        self.tested(operand)
    }

    fn tested(&self, operand: Operand) -> Result<Logical> {
        match operand {
            Operand::Query(query) => Ok(Logical::Exists(query)),
            Operand::Logical(logical) => Ok(logical),
            Operand::Literal(_) | Operand::Value(_) => Err(self.fault("a value must be compared with something")),
        }
    }

    fn compared(&self, operand: Operand) -> Result<Comparable> {
        match operand {
            Operand::Literal(literal) => Ok(Comparable::Literal(literal)),
            Operand::Query(query) if query.is_singular() => Ok(Comparable::Query(query)),
            Operand::Query(_) => Err(self.fault("only a query that finds one node at most can be compared")),
            Operand::Value(value) => Ok(value),
            Operand::Logical(_) => Err(self.fault("match and search cannot be compared")),
        }
    }

    fn comparison(&mut self) -> Option<Comparison> {
        const ALL: [(&str, Comparison); 6] = [
            ("==", Comparison::Equal),
            ("!=", Comparison::Unequal),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        ALL.into_iter().find(|(token, _)| self.eat(token)).map(|(_, comparison)| comparison)
    }

    fn operand(&mut self) -> Result<Operand> {
        match self.peek() {
            Some('@' | '$') => self.query().map(Operand::Query),
            Some('\'' | '"') => self.string().map(|text| Operand::Literal(Json::Text(text.into()))),
            Some('-' | '0'..='9') => self.number().map(Operand::Literal),
            Some('a'..='z') => self.word(),
            _ => Err(self.fault("expected a query, a literal or a function")),
        }
    }

    fn query(&mut self) -> Result<Query> {
        let absolute = self.eat("$");
        if !absolute {
            self.expect("@")?;
        }
        Ok(Query { absolute, segments: self.segments()? })
    }

    fn number(&mut self) -> Result<Json<'static>> {
        let rest = self.rest();
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
        let text = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        match json::parse(text) {
            Ok(Json::Number(number)) => {
                self.at += text.len();
                Ok(Json::Number(number.into_owned()))
            }
            _ => Err(self.fault("expected a number as JSON writes it")),
        }
    }

    /// Parses `true`, `false`, `null` or a function.
    fn word(&mut self) -> Result<Operand> {
        let rest = self.rest();
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let name = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        let literal = match name {
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            "null" => Json::Null,
            name => return self.function(name),
        };
        self.at += name.len();
        Ok(Operand::Literal(literal))
    }

    fn function(&mut self, name: &str) -> Result<Operand> {
        if !matches!(name, "length" | "count" | "value" | "match" | "search") {
            return Err(self.fault(format!("no function '{name}'")));
        }
        self.at += name.len();
        self.deeper(|parser| {
            parser.expect("(")?;
            parser.skip_blank();
            let first = parser.operand()?;
            let called = match name {
                "length" => Operand::Value(Comparable::Length(Box::new(parser.compared(first)?))),
                "count" => Operand::Value(Comparable::Count(parser.all_nodes(first)?)),
                "value" => Operand::Value(Comparable::Value(parser.all_nodes(first)?)),
                name => {
                    let text = parser.compared(first)?;
                    parser.skip_blank();
                    parser.expect(",")?;
                    parser.skip_blank();
                    let second = parser.operand()?;
                    let pattern = Pattern::new(parser.compared(second)?, name == "match");
                    Operand::Logical(Logical::Matches(text, pattern))
                }
            };
            parser.skip_blank();
            parser.expect(")")?;
            Ok(called)
        })
    }

    /// Returns an argument that must be a query.
    fn all_nodes(&self, operand: Operand) -> Result<Query> {
        match operand {
            Operand::Query(query) => Ok(query),
            _ => Err(self.fault("the function takes a query")),
        }
    }
}
