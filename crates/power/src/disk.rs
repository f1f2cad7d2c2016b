//! The disk as the journal tells of it: what was certainly on it, and what may have been.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::Chance;
use crate::journal::{self, Kind, Record};

/// How names reach the disk that no sync has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// In the order in which they came about, as a journaling file system writes them: with any that a sync has confirmed,
    /// all earlier ones are there.
    InOrder,
    /// Each by itself, in any order: what POSIX allows. But for one order that RocksDB relies on: whatever the name `CURRENT`
    /// is given to, the files that were made in its folder before have their names.
    Any,
}

/// What becomes of that which was not synced.
#[derive(Clone, Debug)]
pub struct Outage {
    /// Nothing is kept for certain of files whose path contains this: the disk lies about their syncs. An empty text: it
    /// lies about all, and about names too.
    pub lies_about: Option<&'static str>,
    /// Writes, of a hundred, that are there as a whole.
    pub kept_percent: u64,
    /// Those that are neither there nor missing are torn at multiples of so many bytes.
    pub block: usize,
    /// Whether a part of a torn write that is missing may be rubbish, not only what was there before.
    pub rubbish: bool,
    /// What becomes of names.
    pub names: Names,
    /// Whether the sync of any file confirms all earlier names, as with ext4.
    pub files_confirm_names: bool,
}

impl Outage {
    /// One that chance has chosen; the disk does not lie.
    pub const fn by(chance: &mut Chance) -> Self {
        let any = chance.percent(50);
        Self {
            lies_about: None,
            kept_percent: chance.below(5) * 25,
            block: if chance.percent(50) { 512 } else { 4096 },
            rubbish: chance.percent(25),
            names: if any { Names::Any } else { Names::InOrder },
            files_confirm_names: !any && chance.percent(50),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(u64),
    Folder,
}

#[derive(Debug)]
enum Change {
    Written { at: usize, bytes: Range<usize> },
    Cut(usize),
}

#[derive(Debug, Default)]
struct Inode {
    before: Vec<u8>,
    /// Changes by the number of their record.
    changes: Vec<(u64, Change)>,
    /// Those before this record are on the disk.
    synced: u64,
}

#[derive(Debug)]
enum Naming {
    Comes(PathBuf, Node),
    Goes(PathBuf),
    Moves(PathBuf, PathBuf, Node),
}

#[derive(Debug)]
struct NameChange {
    record: u64,
    confirmed: bool,
    /// By the sync of a file, which only some file systems take for a confirmation.
    perhaps_confirmed: bool,
    naming: Naming,
}

type Tree = BTreeMap<PathBuf, Node>;

/// A disk at the moment at which a program ended.
#[derive(Debug)]
pub struct Disk {
    journal: Vec<u8>,
    files: HashMap<u64, Inode>,
    before: Tree,
    now: Tree,
    naming: Vec<NameChange>,
}

/// Numbers of files that were there before; the journal's begin at 1.
const OLD_FILES: u64 = 1 << 40;

impl Disk {
    pub(crate) fn read(before: &Path, journal: Vec<u8>) -> io::Result<Self> {
        let (mut files, mut tree) = (HashMap::new(), Tree::new());
        for path in walk(before)? {
            let (place, number) = (before.join(&path), OLD_FILES + files.len() as u64);
            let node = if place.is_dir() {
                Node::Folder
            } else {
                files.insert(number, Inode { before: fs::read(&place)?, ..Inode::default() });
                Node::File(number)
            };
            tree.insert(path, node);
        }
        let mut disk = Self { journal, files, now: tree.clone(), before: tree, naming: Vec::new() };
        let mut aliases = HashMap::new();
        for (number, record) in journal::records(&disk.journal)?.into_iter().enumerate() {
            disk.take(number as u64, &record, &mut aliases)?;
        }
        Ok(disk)
    }

    /// Takes in a record. `aliases` leads from the journal's numbers of files to those that were there before.
    fn take(&mut self, number: u64, record: &Record, aliases: &mut HashMap<u64, u64>) -> io::Result<()> {
        let bytes = self.journal[record.bytes.clone()].to_vec();
        let file = *aliases.get(&record.a).unwrap_or(&record.a);
        let path = || journal::path(&bytes).to_owned();
        match record.kind {
            Kind::Known => match self.now.get(journal::path(&bytes)) {
                Some(Node::File(old)) => drop(aliases.insert(record.a, *old)),
                // Its name was gone before anything was known of it: nobody will find it again.
                _ => drop(self.files.insert(record.a, Inode::default())),
            },
            Kind::Created => {
                self.files.insert(record.a, Inode::default());
                self.rename(number, Naming::Comes(path(), Node::File(record.a)));
            }
            Kind::Written => {
                self.change(number, file, Change::Written { at: record.b as usize, bytes: record.bytes.clone() })?;
            }
            Kind::Cut => self.change(number, file, Change::Cut(record.b as usize))?,
            Kind::Synced => {
                let synced = &mut self.inode(file)?.synced;
                *synced = record.b.max(*synced);
                let earlier = self.naming.iter_mut().filter(|name| name.record < record.b);
                earlier.for_each(|name| name.perhaps_confirmed = true);
            }
            Kind::FolderSynced => self.confirm(record.b, journal::path(&bytes)),
            Kind::Renamed => {
                let (from, to) = journal::paths(&bytes)?;
                let node = self.node(from)?;
                if node == Node::Folder {
                    return Err(io::Error::other("folders that are renamed are not told of"));
                }
                self.rename(number, Naming::Moves(from.to_owned(), to.to_owned(), node));
            }
            Kind::Linked => {
                let (from, to) = journal::paths(&bytes)?;
                let node = self.node(from)?;
                self.rename(number, Naming::Comes(to.to_owned(), node));
            }
            Kind::Unlinked | Kind::FolderRemoved => self.rename(number, Naming::Goes(path())),
            Kind::FolderMade => self.rename(number, Naming::Comes(path(), Node::Folder)),
            Kind::Strange => return Err(io::Error::other(String::from_utf8_lossy(&bytes).into_owned())),
        }
        Ok(())
    }

    fn node(&self, path: &Path) -> io::Result<Node> {
        self.now.get(path).copied().ok_or_else(|| unknown(path))
    }

    fn inode(&mut self, file: u64) -> io::Result<&mut Inode> {
        self.files.get_mut(&file).ok_or_else(|| io::Error::other("a file that was never seen"))
    }

    fn change(&mut self, record: u64, file: u64, change: Change) -> io::Result<()> {
        self.inode(file)?.changes.push((record, change));
        Ok(())
    }

    fn rename(&mut self, record: u64, naming: Naming) {
        naming.apply(&mut self.now);
        self.naming.push(NameChange { record, confirmed: false, perhaps_confirmed: false, naming });
    }

    /// A folder was synced: its names as they were before this record are on the disk.
    fn confirm(&mut self, record: u64, folder: &Path) {
        for name in self.naming.iter_mut().filter(|name| name.record < record) {
            name.confirmed |= name.naming.path().parent() == Some(folder);
        }
    }

    /// Changes of files and names that no sync has confirmed.
    pub fn unsynced(&self) -> usize {
        let changes = |file: &Inode| file.changes.iter().filter(|(record, _)| *record >= file.synced).count();
        let names = self.naming.iter().filter(|name| !name.confirmed).count();
        self.files.values().map(changes).sum::<usize>() + names
    }

    /// What is in this folder and in the journal's tale of it, but not the same; nothing, if the journal has missed
    /// nothing. Files that `leave_out` names are not looked at.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn differs_from(&self, folder: &Path, leave_out: impl Fn(&Path) -> bool) -> io::Result<Vec<PathBuf>> {
        let mut differing = Vec::new();
        let mut there = walk(folder)?;
        there.retain(|path| !leave_out(path));
        let told = self.now.keys().filter(|path| !leave_out(path) && there.binary_search(path).is_err());
        differing.extend(told.cloned());
        for path in &there {
            let same = match self.now.get(path) {
                Some(Node::Folder) => folder.join(path).is_dir(),
                Some(Node::File(file)) => fs::read(folder.join(path))
                    .is_ok_and(|found| self.files.get(file).is_some_and(|inode| inode.whole(&self.journal) == found)),
                None => false,
            };
            if !same {
                differing.push(path.clone());
            }
        }
        Ok(differing)
    }

    /// Makes up a folder as the disk may hold it after an outage. Files that `leave_out` names are not in it.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn after(
        &self,
        outage: &Outage,
        chance: &mut Chance,
        into: &Path,
        leave_out: impl Fn(&Path) -> bool,
    ) -> io::Result<()> {
        let tree = self.names_after(outage, chance);
        fs::create_dir_all(into)?;
        // In the order of paths: a folder before what is in it. What lies in a folder that is not there is not there.
        for (path, node) in tree.iter().filter(|(path, _)| !leave_out(path)) {
            let place = into.join(path);
            if !place.parent().is_some_and(Path::is_dir) {
                continue;
            }
            match node {
                Node::Folder => fs::create_dir(&place)?,
                Node::File(file) => {
                    let inode = self.files.get(file).ok_or_else(|| unknown(path))?;
                    let is_honest = !outage.lies_about.is_some_and(|lies| path.to_string_lossy().contains(lies));
                    let synced = if is_honest { inode.synced } else { 0 };
                    fs::write(&place, inode.after(synced, outage, chance, &self.journal))?;
                }
            }
        }
        Ok(())
    }

    fn names_after(&self, outage: &Outage, chance: &mut Chance) -> Tree {
        let confirmed = |name: &NameChange| {
            outage.lies_about != Some("") && (name.confirmed || outage.files_confirm_names && name.perhaps_confirmed)
        };
        let certain = self.naming.iter().rposition(confirmed).map_or(0, |last| last + 1);
        let reached = certain + chance.below((self.naming.len() - certain) as u64 + 1) as usize;
        let mut are_there: Vec<bool> = (0..self.naming.len())
            .zip(&self.naming)
            .map(|(place, name)| match outage.names {
                Names::InOrder => place < reached,
                Names::Any => confirmed(name) || chance.percent(50),
            })
            .collect();
        for place in 0..are_there.len() {
            if let Naming::Moves(_, to, _) = &self.naming[place].naming
                && are_there[place]
                && to.ends_with("CURRENT")
            {
                let made =
                    |name: &NameChange| matches!(&name.naming, Naming::Comes(path, _) if path.parent() == to.parent());
                (0..place).filter(|before| made(&self.naming[*before])).for_each(|before| are_there[before] = true);
            }
        }
        let mut tree = self.before.clone();
        let there = self.naming.iter().zip(are_there).filter(|(_, is_there)| *is_there);
        there.for_each(|(name, _)| name.naming.apply(&mut tree));
        tree
    }
}

impl Naming {
    /// The name by which a sync of its folder confirms it.
    fn path(&self) -> &Path {
        match self {
            Self::Comes(path, _) | Self::Goes(path) | Self::Moves(_, path, _) => path,
        }
    }

    fn apply(&self, tree: &mut Tree) {
        match self {
            Self::Comes(path, node) => drop(tree.insert(path.clone(), *node)),
            Self::Goes(path) => drop(tree.remove(path)),
            Self::Moves(from, to, node) => {
                tree.remove(from);
                tree.insert(to.clone(), *node);
            }
        }
    }
}

impl Inode {
    /// All that was written.
    fn whole(&self, journal: &[u8]) -> Vec<u8> {
        let mut content = self.before.clone();
        self.changes.iter().for_each(|(_, change)| change.apply(&mut content, journal));
        content
    }

    fn after(&self, synced: u64, outage: &Outage, chance: &mut Chance, journal: &[u8]) -> Vec<u8> {
        let mut content = self.before.clone();
        for (record, change) in &self.changes {
            if *record < synced || chance.percent(outage.kept_percent) {
                change.apply(&mut content, journal);
            } else if let Change::Written { at, bytes } = change
                && chance.percent(50)
            {
                tear(&mut content, *at, &journal[bytes.clone()], outage, chance);
            }
        }
        content
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>, journal: &[u8]) {
        match self {
            Self::Written { at, bytes } => put(content, *at, &journal[bytes.clone()]),
            Self::Cut(length) => content.resize(*length, 0),
        }
    }
}

fn put(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[at..end].copy_from_slice(bytes);
}

/// Of a write, each block is there or not. The file may have become as long as it would be, or only as long as what is there.
fn tear(content: &mut Vec<u8>, at: usize, bytes: &[u8], outage: &Outage, chance: &mut Chance) {
    let end = at + bytes.len();
    if chance.percent(50) && content.len() < end {
        content.resize(end, 0);
    }
    let mut from = at;
    while from < end {
        let to = ((from / outage.block + 1) * outage.block).min(end);
        let block = &bytes[from - at..to - at];
        if chance.percent(50) {
            put(content, from, block);
        } else if outage.rubbish && chance.percent(50) {
            let rubbish: Vec<u8> = block.iter().map(|_| chance.number() as u8).collect();
            put(content, from, &rubbish);
        }
        from = to;
    }
}

fn unknown(path: &Path) -> io::Error {
    io::Error::other(format!("{} was never seen", path.display()))
}

/// Everything beneath a folder, without the folder itself, in order.
fn walk(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(folder.join(&at))? {
            let entry = entry?;
            let (path, kind) = (at.join(entry.file_name()), entry.file_type()?);
            if kind.is_dir() {
                folders.push(path.clone());
            }
            if kind.is_dir() || kind.is_file() {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
