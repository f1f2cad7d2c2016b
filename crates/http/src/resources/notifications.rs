//! Notifications of the calling user.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use isobar_hub::NotificationMark;
use isobar_model::access::Action;
use isobar_model::error::Error;
use isobar_model::ids::NotificationId;
use isobar_model::notification::{Notification, NotificationKind, read_mark, read_message};
use isobar_model::page::TimeRange;
use serde::Serialize;
use utoipa::ToSchema;

use super::values::{Id, Time};
use crate::request::{Call, after, both};
use crate::response::{self, Answer};

/// Locale of a text that is not localized.
const LOCALE: &str = "en";

/// A notification.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Notification)]
pub(crate) struct NotificationJson {
    created_at: Time,
    id: Id,
    r#type: NotificationKind,
    /// True if the caller has read it.
    read: bool,
    /// The text by locale; `en` for one that is not localized.
    translations: BTreeMap<String, TranslationJson>,
    /// The device that it is about.
    device_id: Option<Id>,
    /// The alarm that it is about.
    alarm_id: Option<Id>,
}

/// A notification's text in one locale.
#[derive(Serialize, ToSchema)]
#[schema(as = Translation)]
pub(crate) struct TranslationJson {
    message: String,
}

impl From<Notification> for NotificationJson {
    fn from(notification: Notification) -> Self {
        let translation = TranslationJson { message: notification.message };
        Self {
            created_at: Time(notification.created_at),
            id: Id(notification.id.0),
            r#type: notification.kind,
            read: notification.read,
            translations: BTreeMap::from([(LOCALE.to_owned(), translation)]),
            device_id: notification.device.map(|device| Id(device.0)),
            alarm_id: notification.alarm.map(|alarm| Id(alarm.0)),
        }
    }
}

pub(crate) async fn notification_list(call: &mut Call) -> Answer {
    let mut query = call.query();
    let asked = (query.page(), query.boolean("unread", false));
    let (page, unread) = query.end(asked)?;
    let page = call.hub().notification_list(call.caller()?, page, unread).await?;
    call.page(page, |notification| notification.message.len(), NotificationJson::from).await
}

pub(crate) async fn notification_fetch(call: &mut Call) -> Answer {
    let notification = call.hub().notification_fetch(call.caller()?, call.id("id", "notification")?).await?;
    response::ok(&NotificationJson::from(notification))
}

pub(crate) async fn notification_update(call: &mut Call) -> Answer {
    let id: NotificationId = call.id("id", "notification")?;
    let body = call.json(read_mark).await;
    let allowed = async { call.hub().notification_fetch(call.caller()?, id).await.map(|_| ()) };
    let read = after(allowed, body).await?;
    call.hub().notification_update(call.caller()?, id, read).await?;
    response::message(StatusCode::OK, "the notification was updated")
}

pub(crate) async fn notifications_update(call: &mut Call) -> Answer {
    let range = range(call);
    let (range, read) = both(range, call.json(read_mark).await)?;
    call.hub().notifications_mark(call.caller()?, range, NotificationMark::Read(read)).await?;
    response::message(StatusCode::OK, "the notifications were updated")
}

pub(crate) async fn notifications_delete(call: &mut Call) -> Answer {
    let range = range(call)?;
    call.hub().notifications_mark(call.caller()?, range, NotificationMark::Delete).await?;
    response::message(StatusCode::OK, "the notifications were deleted")
}

pub(crate) async fn system_notification_emit(call: &mut Call) -> Answer {
    let body = call.json(read_message).await;
    let message = after(call.hub().allow(call.caller()?, Action::SystemNotificationEmit), body).await?;
    call.hub().system_notification_emit(call.caller()?, message).await?;
    response::message(StatusCode::CREATED, "every user is notified")
}

/// Reads `from`, and `to`, which is required.
fn range(call: &Call) -> Result<TimeRange, Error> {
    let mut query = call.query();
    let range = query.range_with_end();
    query.end(range)
}

/// Marks notifications.
#[derive(ToSchema)]
#[schema(as = ReadMark)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct ReadMarkJson {
    /// True if they are read.
    read: bool,
}

/// Tells every user something.
#[derive(ToSchema)]
#[schema(as = SystemMessage)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct SystemMessageJson {
    #[schema(min_length = 1, max_length = 10000)]
    message: String,
}
