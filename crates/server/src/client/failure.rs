//! Why a command failed, for people as a sentence and for scripts as an exit code.

/// A failure of a client's command.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Something on this machine: a file, the configuration.
    #[error("{0}")]
    Local(String),
    /// The server was not reached, or what answered is no Isobar.
    #[error("{0}")]
    Unreachable(String),
    /// There is no credential, or the server refuses it.
    #[error("{0}")]
    Credentials(String),
    /// The server refused the call.
    #[error("{0}")]
    Refused(String),
    /// Somebody else has changed what was to be changed.
    #[error("{0}")]
    Changed(String),
    /// The reader of the output has gone away.
    #[error("the output was closed")]
    ClosedOutput,
}

impl ClientError {
    /// Returns the exit code. 2 is clap's: a wrong command line.
    pub fn exit_code(&self) -> u8 {
        match self {
            ClientError::ClosedOutput => 0,
            ClientError::Local(_) => 1,
            ClientError::Unreachable(_) => 3,
            ClientError::Credentials(_) => 4,
            ClientError::Refused(_) => 5,
            ClientError::Changed(_) => 6,
        }
    }
}
