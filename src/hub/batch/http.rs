//! The batch route itself.

use std::collections::HashMap;

use async_trait::async_trait;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Method, StatusCode};
use tokio::time::Instant;

use super::{BatchWire, Sent};
use crate::hub::call::Call;
use crate::hub::client::HubClient;
use crate::hub::error::Error;
use crate::hub::retry::{Class, Safety};
use crate::hub::types::{BatchOp, BucketId};
use crate::hub::wire::{BatchLine, BatchReport};

/// Batches of one bucket over HTTP.
pub(in crate::hub) struct HttpWire<'a> {
    client: &'a HubClient,
    bucket: &'a BucketId,
    call: Call<'a>,
}

impl<'a> HttpWire<'a> {
    pub(in crate::hub) fn new(client: &'a HubClient, bucket: &'a BucketId) -> Result<Self, Error> {
        let ndjson = HeaderValue::from_static("application/x-ndjson");
        let mut call = Call::api(Method::POST, client.endpoint(), bucket, "/batch")?
            .header(CONTENT_TYPE, ndjson);
        // A deletion that was done would fail the second time: what may be done is settled, not
        // repeated.
        call.safety = Safety::OnlyUndone;
        call.takes_422 = true;
        Ok(Self {
            client,
            bucket,
            call,
        })
    }
}

#[async_trait]
impl BatchWire for HttpWire<'_> {
    async fn send(&self, ops: &[&BatchOp], deadline: Instant) -> Sent {
        let mut call = self.call.clone();
        match lines(ops) {
            Ok(body) => call.body = body.into(),
            Err(error) => return Sent::Refused(call.describe(error)),
        }
        let reply = match self.client.send_until(&call, deadline).await {
            Ok(reply) => reply,
            Err(gave_up) if gave_up.class == Class::Unknown => {
                return Sent::Unknown {
                    error: gave_up.error,
                    wait: gave_up.wait,
                };
            }
            Err(gave_up) => return Sent::Refused(gave_up.error),
        };
        match reply.json::<BatchReport>(&call) {
            Ok(report) => Sent::Report {
                report,
                context: reply.inconsistent(&call, ""),
            },
            // A 422 without a report is a plain refusal, such as of a bad path.
            Err(_) if reply.status == StatusCode::UNPROCESSABLE_ENTITY => {
                Sent::Refused(reply.refusal(&call))
            }
            Err(error) => Sent::Unknown { error, wait: None },
        }
    }

    async fn look(&self, paths: &[String]) -> Result<HashMap<String, Option<String>>, Error> {
        let items = self.client.paths_info(self.bucket, paths).await?;
        Ok(items
            .into_iter()
            .map(|item| (item.path, item.xet_hash))
            .collect())
    }
}

/// One JSON object per line, each with its line end.
fn lines(ops: &[&BatchOp]) -> Result<Vec<u8>, Error> {
    let mut body = Vec::new();
    for op in ops {
        serde_json::to_writer(&mut body, &BatchLine::from(*op))
            .map_err(crate::hub::call::CallError::Json)?;
        body.push(b'\n');
    }
    Ok(body)
}
