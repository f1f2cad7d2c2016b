//! Errors of client commands: a sentence for people, an exit code for scripts.

/// The error of a client command.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A local cause: a file, the configuration.
    #[error("{0}")]
    Local(String),
    /// The server was not reached, or is not an Isobar.
    #[error("{0}")]
    Unreachable(String),
    /// There is no credential, or the server refused it.
    #[error("{0}")]
    Credentials(String),
    /// The server refused the call.
    #[error("{0}")]
    Refused(String),
    /// The resource was changed by somebody else.
    #[error("{0}")]
    Changed(String),
    /// The reader of the output is gone.
    #[error("the output was closed")]
    ClosedOutput,
}

impl ClientError {
    /// Returns the exit code. 2 is clap's, for a wrong command line.
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
