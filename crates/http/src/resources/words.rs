//! Schemas of enumerated texts.

use isobar_model::alarm::{AlarmAct, AlarmSeverity, AlarmState};
use isobar_model::event::EventType;
use isobar_model::project::PROJECT_TYPE;
use isobar_model::status::Status;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// `words!(Name, "description", [words])`
macro_rules! words {
    ($name:ident, $says:literal, $words:expr) => {
        #[doc = $says]
        pub(crate) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let words = ObjectBuilder::new().schema_type(Type::String).enum_values(Some($words));
                words.description(Some($says)).into()
            }
        }

        impl ToSchema for $name {}
    };
}

words!(StatusText, "A status, in rising priority.", Status::ALL.map(Status::name));
words!(EventTypeText, "The direction of an event.", [EventType::DeviceEvent.name(), EventType::CloudEvent.name()]);
words!(SeverityText, "The severity of an alarm, in rising order.", AlarmSeverity::ALL.map(AlarmSeverity::name));
words!(StateText, "The state of an alarm.", AlarmState::ALL.map(AlarmState::name));
words!(AlarmActText, "The kind of an entry in the history of an alarm.", AlarmAct::ALL.map(AlarmAct::name));
words!(ProjectType, "The type of a project.", [PROJECT_TYPE]);
words!(InputType, "The input type of a setting.", ["text", "number", "toggle", "geolocation"]);
