//! Finds the modules of its own crate that a source uses, in any syntax: paths from `crate`, `self` or `super`, groups,
//! aliases of modules, globs (`*`), re-exports, and macros. Comments and literals are ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::source_files;

/// A module path from the root of its crate, which is empty.
type Module = Vec<String>;

/// A token, as far as paths are concerned.
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

/// Returns the end of a literal that begins here, or `None`. `b"…"`, `r#"…"#` and `'…'` are literals too, lifetimes are
/// not.
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

/// Returns the end of a quoted text, after its quote.
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

/// Returns the end of a comment that begins here, or `None`.
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
            // A raw identifier is written `r#name`.
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

/// A path in a module's source.
#[derive(Clone, Debug)]
struct Written {
    module: Module,
    path: Vec<String>,
}

/// The imports of a module.
#[derive(Debug, Default)]
struct Names {
    /// Imports by their local names.
    imports: BTreeMap<String, Written>,
    /// Modules with a glob import.
    globs: Vec<Written>,
}

/// The parsed sources of a crate.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    modules: BTreeMap<Module, Names>,
    /// All paths in the sources.
    paths: Vec<Written>,
    /// The module that defines each macro, and the uses of macros.
    macros: BTreeMap<String, Module>,
    macro_uses: Vec<(Module, String)>,
    /// Constructs that evade the rules.
    pub(crate) detours: Vec<String>,
}

/// A parser for the tokens of one file.
struct FileReader<'s> {
    sources: &'s mut Sources,
    tokens: Vec<Token>,
    at: usize,
    /// The current module, and the brace depth at which each inline module begins.
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

    /// Returns true within `#[path …` or `#[cfg_attr(…, path …`.
    fn is_in_attribute(&self) -> bool {
        let mut before = self.tokens[..self.at].iter().rev().take_while(|token| **token != Token::Sign(']'));
        before.any(|token| *token == Token::Word("cfg_attr".to_owned()))
            || self.at > 0 && self.is(self.at - 1, &Token::Sign('['))
    }

    fn detour(&mut self, what: &str) {
        self.sources.detours.push(format!("{} has {what}", self.module.join("::")));
    }

    /// Parses a path outside of imports. Segments after an unknown name are irrelevant.
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

    /// Parses one branch of an import, up to the token after it.
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
        // `{self}` is the module of the group.
        let is_itself = path.len() > 1 && path.last().is_some_and(|last| last == "self");
        let path = if is_itself { path[..path.len() - 1].to_vec() } else { path.to_vec() };
        let name = if name == "self" { path.last().cloned().unwrap_or_default() } else { name.to_owned() };
        let written = Written { module: self.module.clone(), path };
        self.sources.paths.push(written.clone());
        self.sources.modules.entry(self.module.clone()).or_default().imports.insert(name, written);
    }
}

/// Modules that a path passes, without the item at its end; the root counts if it re-exports the item.
type Passed = BTreeSet<Module>;

impl Sources {
    /// Adds the source of a module.
    pub(crate) fn add(&mut self, module: &[&str], text: &str) {
        let module: Module = module.iter().map(|name| (*name).to_owned()).collect();
        let reader = FileReader { sources: self, tokens: tokens(text), at: 0, module, inline: Vec::new(), depth: 0 };
        reader.read();
    }

    /// Parses the sources of a crate without its tests.
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

    /// Returns pairs of a module and one that it uses, in the order of the source.
    pub(crate) fn knowledge(&self) -> Vec<(Module, Module)> {
        let mut known = Vec::new();
        for written in &self.paths {
            let mut passed = Passed::new();
            self.follow(written, &mut passed, 0);
            known.extend(passed.into_iter().map(|other| (written.module.clone(), other)));
        }
        for (module, names) in &self.modules {
            // A glob import includes re-exports of the module.
            let mut passed = Passed::new();
            names.globs.iter().for_each(|glob| self.follow_all(glob, &mut passed, 0));
            known.extend(passed.into_iter().map(|other| (module.clone(), other)));
        }
        for (module, name) in &self.macro_uses {
            known.extend(self.macros.get(name).map(|made_in| (module.clone(), made_in.clone())));
        }
        known
    }

    /// Follows everything that a module exports.
    fn follow_all(&self, glob: &Written, passed: &mut Passed, steps: usize) {
        let Some(of) = self.follow(glob, passed, steps).filter(|_| steps < 8) else { return };
        let Some(names) = self.modules.get(&of) else { return };
        names.imports.values().for_each(|shown| drop(self.follow(shown, passed, steps + 1)));
        names.globs.iter().for_each(|more| self.follow_all(more, passed, steps + 1));
    }

    /// Resolves a path to its module or its item's module, and collects the modules passed; `None` if it leaves the
    /// crate.
    fn follow(&self, written: &Written, passed: &mut Passed, steps: usize) -> Option<Module> {
        // Two modules may have glob imports of one another.
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
            // An imported name also uses all that its import passes.
            _ => {
                let (first, rest): (&String, Vec<&String>) = (path.next()?, path.collect());
                let at = self.named(&here, first, passed, steps)?;
                return Some(self.descend(at, rest.into_iter(), passed, steps));
            }
        }
        Some(self.descend(here, path, passed, steps))
    }

    /// Descends from a module as long as the path names modules.
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

    /// Resolves a name in a module: a child module, or an import of that name.
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
