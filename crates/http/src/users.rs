//! Users and their API keys.

use isobar_model::access::Action;
use isobar_model::check::Input;
use isobar_model::ids::{ApiKeyId, UserId};
use isobar_model::user::NewUser;
use isobar_model::user_input::{UserInput, role_in};

use crate::call::{Call, after};
use crate::reply::{self, Answer};
use crate::views::{ApiKeyJson, Id, NewApiKeyJson, Time, UserJson};

pub(crate) const SORTED_BY: &[&str] = isobar_hub::sortable::USERS;

pub(crate) async fn user_list(call: &mut Call) -> Answer {
    let mut query = call.query();
    let asked = (query.tree("organizationId"), query.list(SORTED_BY));
    let (tree, list) = query.end(asked)?;
    reply::page(call.hub().user_list(call.caller()?, tree, list).await?, UserJson::from).await
}

pub(crate) async fn user_create(call: &mut Call) -> Answer {
    let (role, body) = call.json_beside(|body| (role_in(body), NewUser::read(body, false))).await;
    let new = after(call.hub().allow_user_of(call.caller()?, role), body).await?;
    let user = call.hub().user_create(call.caller()?, new).await?;
    reply::created(&UserJson::from(user))
}

pub(crate) async fn user_fetch(call: &mut Call) -> Answer {
    let user = call.hub().user_fetch(call.caller()?, call.id("id", "user")?).await?;
    reply::ok(&UserJson::from(user))
}

pub(crate) async fn user_update(call: &mut Call) -> Answer {
    let id: UserId = call.id("id", "user")?;
    let (role, body) = call.json_beside(|body| (role_in(body), UserInput::read(body))).await;
    let input = after(call.hub().allow_user_update(call.caller()?, id, role), body).await?;
    let user = call.hub().user_update(call.caller()?, id, input).await?;
    reply::ok(&UserJson::from(user))
}

pub(crate) async fn user_delete(call: &mut Call) -> Answer {
    call.hub().user_delete(call.caller()?, call.id("id", "user")?).await?;
    reply::no_content()
}

pub(crate) async fn api_key_list(call: &mut Call) -> Answer {
    let id: UserId = call.id("id", "user")?;
    let mut query = call.query();
    let page = query.page();
    let allowed = call.hub().allow_user(call.caller()?, id, Action::ApiKeyManage);
    let page = after(allowed, query.end(page)).await?;
    reply::page(call.hub().api_key_list(call.caller()?, id, page).await?, ApiKeyJson::from).await
}

pub(crate) async fn api_key_create(call: &mut Call) -> Answer {
    let id: UserId = call.id("id", "user")?;
    let body = call.json(|body| {
        let mut input = Input::body(body)?;
        let name = input.required_text("name", 1, 80);
        input.unless_any(name)
    });
    let body = body.await;
    let name = after(call.hub().allow_user(call.caller()?, id, Action::ApiKeyManage), body).await?;
    let (key, secret) = call.hub().api_key_create(call.caller()?, id, name).await?;
    let (id, created_at) = (Id(key.id.0), Time(key.created_at));
    reply::created(&NewApiKeyJson { id, name: key.name, key: secret.reveal(), created_at })
}

pub(crate) async fn api_key_delete(call: &mut Call) -> Answer {
    let (id, key): (UserId, ApiKeyId) = (call.id("id", "user")?, call.id("keyId", "API key")?);
    call.hub().api_key_delete(call.caller()?, id, key).await?;
    reply::no_content()
}
