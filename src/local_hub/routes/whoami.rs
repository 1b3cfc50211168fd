//! `GET /api/whoami-v2`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::HeaderMap;
use serde_json::{Value, json};

use super::super::answer::Refusal;
use super::super::auth::Caller;
use super::super::hub::Hub;

pub(super) async fn whoami(
    Shared(hub): Shared<Arc<Hub>>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refusal> {
    let grant = Caller::of(&hub.grants, &headers)?.grant()?;
    let orgs: Vec<_> = grant
        .namespaces
        .iter()
        .filter(|namespace| **namespace != grant.user)
        .map(|name| {
            json!({
                "type": "org", "id": name, "name": name, "fullname": name,
                "isEnterprise": false, "roleInOrg": "admin",
            })
        })
        .collect();
    Ok(Json(json!({
        "type": "user",
        "id": grant.user,
        "name": grant.user,
        "fullname": grant.user,
        "isPro": false,
        "canPay": false,
        "orgs": orgs,
        "auth": {"type": "access_token", "accessToken": {
            "displayName": "local",
            "role": if grant.write { "write" } else { "read" },
        }},
    })))
}
