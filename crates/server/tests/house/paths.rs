//! Which modules of its own crate a source knows, however it writes that down: a path from `crate`, `self` or `super`, a group,
//! another name for a module, all that a module has (`*`), what another module shows of a third, or a macro of another.
//! Comments and texts know nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::source_files;

/// A module, from the root of its crate, which is empty.
type Module = Vec<String>;

/// What a source is made of, as far as paths are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// `::`
    Separator,
    Sign(char),
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where a text that begins here ends; none: it is no text. `b"…"`, `r#"…"#` and `'…'` are texts too, a lifetime is not.
fn text_end(rest: &str) -> Option<usize> {
    let open = rest.trim_start_matches(['b', 'c', 'r']);
    let prefix = rest.len() - open.len();
    let fences = open.len() - open.trim_start_matches('#').len();
    let is_raw = rest[..prefix].contains('r');
    if prefix <= 2 && open[fences..].starts_with('"') && (is_raw || fences == 0) {
        let body = prefix + fences + 1;
        if is_raw {
            let close = format!("\"{}", "#".repeat(fences));
            return rest[body..].find(&close).map(|at| body + at + close.len());
        }
        return quoted_end(&rest[body..], '"').map(|at| body + at);
    }
    let body = rest.strip_prefix("b'").or_else(|| rest.strip_prefix('\''))?;
    let mut chars = body.chars();
    let (first, second) = (chars.next()?, chars.next());
    let is_text = first == '\\' || second == Some('\'');
    is_text.then(|| quoted_end(body, '\'').map(|at| rest.len() - body.len() + at)).flatten()
}

/// Where a quoted text ends, behind its quote.
fn quoted_end(body: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    for (at, c) in body.char_indices() {
        if !is_escaped && c == quote {
            return Some(at + 1);
        }
        is_escaped = !is_escaped && c == '\\';
    }
    None
}

/// Where a comment that begins here ends; none: it is no comment.
fn comment_end(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    rest.strip_prefix("/*")?;
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
    Some(rest.len())
}

fn tokens(text: &str) -> Vec<Token> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        if let Some(end) = comment_end(rest).or_else(|| text_end(rest)) {
            at += end;
        } else if is_word(c) {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            // A name that would be a keyword is written `r#name`.
            if &rest[..end] != "r" || !rest[end..].starts_with('#') {
                found.push(Token::Word(rest[..end].to_owned()));
            }
            at += end;
        } else if rest.starts_with("::") {
            found.push(Token::Separator);
            at += 2;
        } else {
            found.extend((!c.is_whitespace()).then_some(Token::Sign(c)));
            at += c.len_utf8();
        }
    }
    found
}

/// A path as it is written, in a module.
#[derive(Clone, Debug)]
struct Written {
    module: Module,
    path: Vec<String>,
}

/// What is known of a module.
#[derive(Debug, Default)]
struct Names {
    /// What it imports, by the name that it has there.
    imports: BTreeMap<String, Written>,
    /// Modules of which it imports everything.
    globs: Vec<Written>,
}

/// A crate, made of its sources.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    modules: BTreeMap<Module, Names>,
    /// Every path that is written anywhere.
    paths: Vec<Written>,
    /// The module in which each macro is made, and where macros are used.
    macros: BTreeMap<String, Module>,
    macro_uses: Vec<(Module, String)>,
    /// What leads past all rules.
    pub(crate) detours: Vec<String>,
}

/// Reads the tokens of one file.
struct FileReader<'s> {
    sources: &'s mut Sources,
    tokens: Vec<Token>,
    at: usize,
    /// The module that is read, and how deep in braces each inline one of it begins.
    module: Module,
    inline: Vec<usize>,
    depth: usize,
}

impl FileReader<'_> {
    fn word(&self, at: usize) -> Option<&str> {
        match self.tokens.get(at) {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn is(&self, at: usize, token: &Token) -> bool {
        self.tokens.get(at) == Some(token)
    }

    fn read(mut self) {
        self.sources.modules.entry(self.module.clone()).or_default();
        while self.at < self.tokens.len() {
            match &self.tokens[self.at] {
                Token::Sign('{') => self.depth += 1,
                Token::Sign('}') => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.inline.last() == Some(&self.depth) {
                        self.inline.pop();
                        self.module.pop();
                    }
                }
                Token::Word(_) => self.read_word(),
                Token::Sign(_) | Token::Separator => {}
            }
            self.at += 1;
        }
    }

    fn read_word(&mut self) {
        let (word, next) = (self.word(self.at).unwrap_or_default().to_owned(), self.at + 1);
        let calls = self.is(next, &Token::Sign('!'));
        match word.as_str() {
            "use" => {
                self.at += 1;
                self.read_import(&mut Vec::new());
            }
            "mod" if self.is(self.at + 2, &Token::Sign('{')) => {
                self.module.push(self.word(next).unwrap_or_default().to_owned());
                self.inline.push(self.depth);
                self.sources.modules.entry(self.module.clone()).or_default();
                self.at += 1;
            }
            "macro_rules" if calls => {
                let name = self.word(self.at + 2).unwrap_or_default().to_owned();
                self.sources.macros.insert(name, self.module.clone());
                self.at += 2;
            }
            "include" if calls => self.detour("include!"),
            "extern" if self.word(next) == Some("crate") => self.detour("extern crate"),
            "path" if self.is(next, &Token::Sign('=')) && self.is_in_attribute() => self.detour("#[path]"),
            _ if calls => self.sources.macro_uses.push((self.module.clone(), word)),
            _ if self.is(next, &Token::Separator) => self.read_path(word),
            _ => {}
        }
    }

    /// `#[path …` or `#[cfg_attr(…, path …`.
    fn is_in_attribute(&self) -> bool {
        let mut before = self.tokens[..self.at].iter().rev().take_while(|token| **token != Token::Sign(']'));
        before.any(|token| *token == Token::Word("cfg_attr".to_owned()))
            || self.at > 0 && self.is(self.at - 1, &Token::Sign('['))
    }

    fn detour(&mut self, what: &str) {
        self.sources.detours.push(format!("{} has {what}", self.module.join("::")));
    }

    /// A path outside of imports. What follows a path that nobody knows is of no account.
    fn read_path(&mut self, first: String) {
        let mut path = vec![first];
        while self.is(self.at + 1, &Token::Separator) {
            let Some(word) = self.word(self.at + 2) else { break };
            path.push(word.to_owned());
            self.at += 2;
        }
        if self.is(self.at + 1, &Token::Sign('!')) {
            let name = path.last().cloned().unwrap_or_default();
            self.sources.macro_uses.push((self.module.clone(), name));
        }
        self.sources.paths.push(Written { module: self.module.clone(), path });
    }

    /// One branch of an import, up to the sign behind it.
    fn read_import(&mut self, before: &mut Vec<String>) {
        let length = before.len();
        loop {
            match self.tokens.get(self.at).cloned() {
                Some(Token::Word(word)) if word == "as" => {
                    let name = self.word(self.at + 1).unwrap_or_default().to_owned();
                    self.import(before, &name);
                    self.at += 2;
                    break;
                }
                Some(Token::Word(word)) => before.push(word),
                Some(Token::Sign('*')) => {
                    let written = Written { module: self.module.clone(), path: before.clone() };
                    self.sources.paths.push(written.clone());
                    self.sources.modules.entry(self.module.clone()).or_default().globs.push(written);
                    self.at += 1;
                    break;
                }
                Some(Token::Sign('{')) => {
                    while !self.is(self.at, &Token::Sign('}')) && self.at < self.tokens.len() {
                        self.at += 1;
                        self.read_import(before);
                    }
                    self.at += 1;
                    break;
                }
                Some(Token::Separator) => {}
                _ => {
                    if before.len() > length {
                        let name = before.last().cloned().unwrap_or_default();
                        self.import(before, &name);
                    }
                    break;
                }
            }
            self.at += 1;
        }
        before.truncate(length);
    }

    fn import(&mut self, path: &[String], name: &str) {
        // `{self}` is the module that the group belongs to.
        let is_itself = path.len() > 1 && path.last().is_some_and(|last| last == "self");
        let path = if is_itself { path[..path.len() - 1].to_vec() } else { path.to_vec() };
        let name = if name == "self" { path.last().cloned().unwrap_or_default() } else { name.to_owned() };
        let written = Written { module: self.module.clone(), path };
        self.sources.paths.push(written.clone());
        self.sources.modules.entry(self.module.clone()).or_default().imports.insert(name, written);
    }
}

/// Modules on the way of a path, the item at its end aside; the root is there where it shows what is asked for.
type Passed = BTreeSet<Module>;

impl Sources {
    /// Adds the source of a module.
    pub(crate) fn add(&mut self, module: &[&str], text: &str) {
        let module: Module = module.iter().map(|name| (*name).to_owned()).collect();
        let reader = FileReader { sources: self, tokens: tokens(text), at: 0, module, inline: Vec::new(), depth: 0 };
        reader.read();
    }

    /// The sources of a crate, but for its tests.
    pub(crate) fn of_folder(folder: &Path) -> Self {
        let mut sources = Self::default();
        for (path, text) in source_files(folder) {
            let place = path.strip_prefix(folder).unwrap().with_extension("");
            let module: Vec<&str> = place.iter().filter_map(|part| part.to_str()).collect();
            let is_itself = matches!(module.last(), Some(&("mod" | "lib" | "main")));
            sources.add(&module[..module.len() - usize::from(is_itself)], &text);
        }
        sources
    }

    /// Each module, and each that it knows: in the order in which they are written.
    pub(crate) fn knowledge(&self) -> Vec<(Module, Module)> {
        let mut known = Vec::new();
        for written in &self.paths {
            let mut passed = Passed::new();
            self.follow(written, &mut passed, 0);
            known.extend(passed.into_iter().map(|other| (written.module.clone(), other)));
        }
        for (module, names) in &self.modules {
            // Who imports all of a module imports what that shows of others.
            let mut passed = Passed::new();
            names.globs.iter().for_each(|glob| self.follow_all(glob, &mut passed, 0));
            known.extend(passed.into_iter().map(|other| (module.clone(), other)));
        }
        for (module, name) in &self.macro_uses {
            known.extend(self.macros.get(name).map(|made_in| (module.clone(), made_in.clone())));
        }
        known
    }

    /// All that a module shows.
    fn follow_all(&self, glob: &Written, passed: &mut Passed, steps: usize) {
        let Some(of) = self.follow(glob, passed, steps).filter(|_| steps < 8) else { return };
        let Some(names) = self.modules.get(&of) else { return };
        names.imports.values().for_each(|shown| drop(self.follow(shown, passed, steps + 1)));
        names.globs.iter().for_each(|more| self.follow_all(more, passed, steps + 1));
    }

    /// The module or the item's module that a path leads to, and those on the way; none: it leads out of the crate.
    fn follow(&self, written: &Written, passed: &mut Passed, steps: usize) -> Option<Module> {
        // Two modules may import everything of one another.
        if steps > 32 {
            return None;
        }
        let mut path = written.path.iter().peekable();
        let mut here = written.module.clone();
        match path.peek().map(|first| first.as_str()) {
            Some("crate") => {
                here.clear();
                path.next();
            }
            Some("self" | "super") => {
                while let Some(word) = path.next_if(|word| ["self", "super"].contains(&word.as_str())) {
                    if word == "super" {
                        here.pop();
                    }
                }
            }
            // A name that stands here by an import, whatever the import passes is known by it.
            _ => {
                let (first, rest): (&String, Vec<&String>) = (path.next()?, path.collect());
                let at = self.named(&here, first, passed, steps)?;
                return Some(self.descend(at, rest.into_iter(), passed, steps));
            }
        }
        Some(self.descend(here, path, passed, steps))
    }

    /// Goes on from a module, as far as the path names modules.
    fn descend<'p>(
        &self,
        mut here: Module,
        path: impl Iterator<Item = &'p String>,
        passed: &mut Passed,
        steps: usize,
    ) -> Module {
        let mut is_shown = false;
        for name in path {
            let Some(next) = self.named(&here, name, passed, steps) else {
                is_shown = here.is_empty();
                break;
            };
            is_shown |= here.is_empty() && next != [name.clone()];
            here = next;
        }
        if is_shown {
            passed.insert(Module::new());
        }
        passed.insert(here.clone());
        here
    }

    /// What a name means in a module: one of its own modules, or what it imports by that name.
    fn named(&self, module: &Module, name: &str, passed: &mut Passed, steps: usize) -> Option<Module> {
        let names = self.modules.get(module)?;
        let own: Module = module.iter().cloned().chain([name.to_owned()]).collect();
        if self.modules.contains_key(&own) {
            return Some(own);
        }
        if let Some(import) = names.imports.get(name).filter(|import| import.path != [name]) {
            return self.follow(import, passed, steps + 1);
        }
        let mut globs = names.globs.iter().filter_map(|glob| self.follow(glob, &mut Passed::new(), steps + 1));
        globs.find_map(|of| (of != *module).then(|| self.named(&of, name, passed, steps + 1)).flatten())
    }
}
