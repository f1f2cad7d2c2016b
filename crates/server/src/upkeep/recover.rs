//! A store whose log is damaged refuses to open, because changes that were acknowledged would be gone without a word. An
//! operator who has no better copy goes on with what is left, and says so.

use super::Told;
use crate::config::{self, Flags};
use crate::folder::DataFolder;
use crate::stores::whole;
use crate::{Failure, logging, runtime};

/// `isobar recover`
pub fn recover(flags: &Flags) -> Result<Told, Failure> {
    let settings = config::load(flags)?.settings;
    logging::start(&settings.log);
    if !DataFolder::is_there(&settings.data) {
        return Err(format!("{} is no data folder of isobar", settings.data.display()).into());
    }
    let _folder = DataFolder::take(&settings.data)?;
    let lost = runtime::start(1)?.block_on(isobar_store::registry::loss_accept(&settings.registry));
    let text = match lost.map_err(|error| format!("the registry cannot be read: {}", whole(&error)))? {
        Some(loss) => format!("The registry goes on without them: {loss}. Run isobar check before it serves again.\n"),
        None => "The registry has lost nothing that it knows of.\n".to_owned(),
    };
    Ok(Told { text, sound: true })
}
