//! `isobar recover`: a platform that refuses to start, because something that was acknowledged is lost, goes on without it.
//! Nothing is done before it is named and wanted.

use super::{Told, registry_loss};
use crate::cli::Recovery;
use crate::config::{self, Flags};
use crate::folder::DataFolder;
use crate::{Failure, logging};

/// `isobar recover`
pub fn recover(flags: &Flags, wanted: &Recovery) -> Result<Told, Failure> {
    let settings = config::load(flags)?.settings;
    logging::start(&settings.log);
    if !DataFolder::is_there(&settings.data) {
        return Err(format!("{} is no data folder of isobar", settings.data.display()).into());
    }
    let _folder = DataFolder::take(&settings.data)?;
    let Some(mut text) = registry_loss::named(&settings)? else {
        let text = "Nothing that was acknowledged is missing: there is nothing to recover.\n".to_owned();
        return Ok(Told { text, sound: true });
    };
    if !wanted.yes {
        text.push_str("Nothing was changed. To do this, run the command again with --yes.\n");
        return Ok(Told { text, sound: false });
    }
    text.push_str(&registry_loss::accept(&settings)?);
    text.push_str("Run isobar check: it tells whether what is left fits together.\n");
    Ok(Told { text, sound: true })
}
