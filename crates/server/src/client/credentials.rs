//! Credentials: a key of the environment, or those of a login, in a file that only its owner can read.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::failure::ClientError;

/// Modes of the file and of its folder: for their owner only, whatever the umask.
const MODE: u32 = 0o600;
const LOGIN_FOLDER_MODE: u32 = 0o700;

/// A caller's credential.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Credential {
    /// An API key.
    ApiKey(String),
    /// A user's session.
    Session {
        /// Valid for minutes.
        access_token: String,
        /// Renews the access token; valid for days.
        refresh_token: String,
    },
}

/// The stored login.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Login {
    /// The server, the only one to which the credential is sent.
    pub server: String,
    /// The credential.
    pub credential: Credential,
}

/// Returns the API key in the environment.
pub fn environment_key() -> Option<String> {
    std::env::var("ISOBAR_API_KEY").ok().map(|key| key.trim().to_owned()).filter(|key| !key.is_empty())
}

/// Reads the last login. Refuses a file that others may read.
pub fn load() -> Result<Option<Login>, ClientError> {
    let path = place()?;
    let metadata = match std::fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", &path, &error)),
    };
    if metadata.permissions().mode() & 0o077 != 0 {
        let told = format!("{} can be read by others; run: chmod 600 {}", path.display(), path.display());
        return Err(ClientError::Credentials(told));
    }
    let text = std::fs::read_to_string(&path).map_err(|error| failed("read", &path, &error))?;
    let read = serde_json::from_str(&text).map_err(|_| {
        ClientError::Credentials(format!("{} is no login of isobar; run isobar login again", path.display()))
    })?;
    Ok(Some(read))
}

/// Stores a login atomically.
pub fn save(login: &Login) -> Result<PathBuf, ClientError> {
    let path = place()?;
    let text = serde_json::to_string_pretty(login).map_err(|error| ClientError::Local(error.to_string()))?;
    let next = path.with_extension(format!("{}.new", std::process::id()));
    let write = || {
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(LOGIN_FOLDER_MODE).create(folder)?;
            // It may exist, and others who may write to it could put their own login there.
            std::fs::set_permissions(folder, Permissions::from_mode(LOGIN_FOLDER_MODE))?;
        }
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(&next)?;
        file.set_permissions(Permissions::from_mode(MODE))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&next, &path)
    };
    write().map_err(|error| failed("write", &path, &error))?;
    Ok(path)
}

/// Removes the last login, if there is one.
pub fn remove() -> Result<(), ClientError> {
    let path = place()?;
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("remove", &path, &error)),
        _ => Ok(()),
    }
}

fn place() -> Result<PathBuf, ClientError> {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = of("XDG_CONFIG_HOME").or_else(|| of("HOME").map(|home| home.join(".config")));
    let folder = folder.ok_or_else(|| ClientError::Local("neither XDG_CONFIG_HOME nor HOME is set".to_owned()))?;
    Ok(folder.join("isobar").join("login.json"))
}

fn failed(what: &str, path: &std::path::Path, error: &std::io::Error) -> ClientError {
    ClientError::Local(format!("cannot {what} {}: {error}", path.display()))
}
