//! Possible states of a disk after a power cut, computed from the journal.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::Chance;
use crate::journal::{self, Kind, Record};

/// The order in which unsynced names become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// In their order, as on a journaling file system: if a name is durable, all earlier ones are.
    InOrder,
    /// In any order, as POSIX allows, with one exception that RocksDB relies on: when a file is renamed to `CURRENT`,
    /// files created in its folder before have their names.
    Any,
}

/// The fate of unsynced changes.
#[derive(Clone, Debug)]
pub struct Outage {
    /// Ignores syncs of files whose path contains this text. An empty text ignores all syncs, of names too.
    pub lies_about: Option<&'static str>,
    /// Percentage of unsynced writes that survive whole.
    pub kept_percent: u64,
    /// Size of the blocks at which other writes are torn, in bytes.
    pub block: usize,
    /// True if a missing block may be random bytes instead of its old contents.
    pub rubbish: bool,
    /// The order of names.
    pub names: Names,
    /// True if a sync of any file makes all earlier names durable, as on ext4.
    pub files_confirm_names: bool,
}

impl Outage {
    /// Draws an outage at random, of a disk that honours syncs.
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
    /// Changes, each with the number of its record.
    changes: Vec<(u64, Change)>,
    /// Number of the first record that is not durable.
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
    /// Set by the sync of a file, which only some file systems take for a sync of names.
    perhaps_confirmed: bool,
    naming: Naming,
}

type Tree = BTreeMap<PathBuf, Node>;

/// The disk of a program at the moment at which it ended.
#[derive(Debug)]
pub struct Disk {
    journal: Vec<u8>,
    files: HashMap<u64, Inode>,
    before: Tree,
    now: Tree,
    naming: Vec<NameChange>,
}

/// First number of files that existed before; those of the journal begin at 1.
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

    /// Applies a record. `aliases` maps the journal's numbers to those of files that existed before.
    fn take(&mut self, number: u64, record: &Record, aliases: &mut HashMap<u64, u64>) -> io::Result<()> {
        let bytes = self.journal[record.bytes.clone()].to_vec();
        let file = *aliases.get(&record.a).unwrap_or(&record.a);
        let path = || journal::path(&bytes).to_owned();
        match record.kind {
            Kind::Known => match self.now.get(journal::path(&bytes)) {
                Some(Node::File(old)) => drop(aliases.insert(record.a, *old)),
                // Its name was removed before the layer saw the file: it cannot be found again.
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

    /// Marks the names in a synced folder before this record as durable.
    fn confirm(&mut self, record: u64, folder: &Path) {
        for name in self.naming.iter_mut().filter(|name| name.record < record) {
            name.confirmed |= name.naming.path().parent() == Some(folder);
        }
    }

    /// Returns the number of changes of files and names that no sync has made durable.
    pub fn unsynced(&self) -> usize {
        let changes = |file: &Inode| file.changes.iter().filter(|(record, _)| *record >= file.synced).count();
        let names = self.naming.iter().filter(|name| !name.confirmed).count();
        self.files.values().map(changes).sum::<usize>() + names
    }

    /// Returns the paths whose contents differ between this folder and the journal; none if the journal is complete.
    /// Skips files that `leave_out` selects.
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

    /// Writes a folder as the disk may hold it after an outage, without the files that `leave_out` selects.
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
        // In the order of paths, so that a folder comes before its contents. The contents of a lost folder are lost.
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
    /// Returns the name whose folder must be synced to make it durable.
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
    /// Returns the contents with all writes applied.
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

/// Applies a random subset of a write's blocks. The file may have got its full length without them.
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

/// Lists everything beneath a folder, in order, without the folder itself.
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
