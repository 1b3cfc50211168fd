//! The JSON of each route, and nothing else.
//!
//! The Hub describes its routes at <https://huggingface.co/.well-known/openapi.json>.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize};

use super::types::{BatchOp, BucketInfo, CreateBucket, ItemKind, TreeItem, WhoAmI};

/// `GET /api/whoami-v2`: <https://huggingface.co/docs/hub/api>.
#[derive(Debug, Deserialize)]
pub(super) struct WhoAmIReply {
    name: String,
    #[serde(default)]
    orgs: Vec<Org>,
}

#[derive(Debug, Deserialize)]
struct Org {
    name: String,
}

impl From<WhoAmIReply> for WhoAmI {
    fn from(reply: WhoAmIReply) -> Self {
        Self {
            name: reply.name,
            orgs: reply.orgs.into_iter().map(|org| org.name).collect(),
        }
    }
}

/// Body of `POST /api/buckets/{ns}/{name}`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CreateBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    private: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_group_id: Option<&'a str>,
}

impl<'a> From<&'a CreateBucket> for CreateBody<'a> {
    fn from(options: &'a CreateBucket) -> Self {
        Self {
            private: options.private,
            region: options.region.as_deref(),
            resource_group_id: options.resource_group_id.as_deref(),
        }
    }
}

/// `GET /api/buckets/{ns}/{name}`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BucketReply {
    id: String,
    private: bool,
    created_at: Option<DateTime<Utc>>,
    updated_at: Option<DateTime<Utc>>,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    total_files: u64,
}

impl From<BucketReply> for BucketInfo {
    fn from(reply: BucketReply) -> Self {
        Self {
            id: reply.id,
            private: reply.private,
            created_at: reply.created_at,
            updated_at: reply.updated_at,
            size: reply.size,
            total_files: reply.total_files,
        }
    }
}

/// One item of `GET …/tree` and `POST …/paths-info`.
///
/// Names are camel case throughout (`uploadedAt` too), and only `type` and `path` are always there:
/// directories have no hash.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Item {
    #[serde(rename = "type")]
    kind: Kind,
    path: String,
    size: Option<u64>,
    xet_hash: Option<String>,
    #[serde(default, deserialize_with = "time")]
    mtime: Option<DateTime<Utc>>,
    #[serde(default, deserialize_with = "time")]
    uploaded_at: Option<DateTime<Utc>>,
    content_type: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    File,
    Directory,
    /// A kind that the Hub may add later must not spoil the whole answer.
    #[serde(other)]
    Other,
}

impl From<Item> for TreeItem {
    fn from(item: Item) -> Self {
        Self {
            kind: match item.kind {
                Kind::File => ItemKind::File,
                Kind::Directory => ItemKind::Directory,
                Kind::Other => ItemKind::Other,
            },
            path: item.path,
            size: item.size,
            xet_hash: item.xet_hash,
            mtime: item.mtime,
            uploaded_at: item.uploaded_at,
            content_type: item.content_type,
        }
    }
}

/// An ISO 8601 text; milliseconds since 1970, which is how times are sent, are taken too.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DateTime<Utc>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Time {
        Text(DateTime<Utc>),
        Millis(i64),
    }
    Ok(match Option::deserialize(deserializer)? {
        Some(Time::Text(time)) => Some(time),
        Some(Time::Millis(millis)) => DateTime::from_timestamp_millis(millis),
        None => None,
    })
}

/// Body of `POST …/paths-info`.
#[derive(Debug, Serialize)]
pub(super) struct PathsBody<'a> {
    pub paths: &'a [String],
}

/// One line of `POST …/batch`. Times go out as integer milliseconds.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub(super) enum BatchLine<'a> {
    #[serde(rename = "addFile")]
    Add {
        path: &'a str,
        xet_hash: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        mtime: Option<i64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        content_type: Option<&'a str>,
    },
    #[serde(rename = "copyFile")]
    Copy {
        path: &'a str,
        xet_hash: &'a str,
        source_repo_type: &'static str,
        source_repo_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        mtime: Option<i64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        content_type: Option<&'a str>,
    },
    #[serde(rename = "deleteFile")]
    Delete { path: &'a str },
}

impl<'a> From<&'a BatchOp> for BatchLine<'a> {
    fn from(op: &'a BatchOp) -> Self {
        match op {
            BatchOp::Add {
                path,
                xet_hash,
                mtime_ms,
                content_type,
            } => Self::Add {
                path,
                xet_hash,
                mtime: *mtime_ms,
                content_type: content_type.as_deref(),
            },
            BatchOp::Copy {
                path,
                xet_hash,
                source,
                mtime_ms,
                content_type,
            } => Self::Copy {
                path,
                xet_hash,
                source_repo_type: "bucket",
                source_repo_id: source.to_string(),
                mtime: *mtime_ms,
                content_type: content_type.as_deref(),
            },
            BatchOp::Delete { path } => Self::Delete { path },
        }
    }
}

/// The report of `POST …/batch`, under 200 and 422 alike. All four fields are required: one without
/// them is not a report.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct BatchReport {
    pub success: bool,
    pub processed: u64,
    pub succeeded: u64,
    pub failed: Vec<FailedOp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct FailedOp {
    pub path: String,
    pub error: String,
}

/// `GET /buckets/{ns}/{name}/resolve/{path}` with `Accept: application/vnd.xet-fileinfo+json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileInfoReply {
    pub hash: Option<String>,
    pub etag: Option<String>,
    pub size: u64,
    pub content_type: Option<String>,
    pub refresh_url: Option<String>,
    pub reconstruction_url: Option<String>,
}

/// `GET …/xet-read-token` and `…/xet-write-token`: <https://huggingface.co/docs/xet/auth>.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TokenReply {
    pub cas_url: String,
    pub access_token: String,
    /// Unix seconds.
    pub exp: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::BucketId;

    #[test]
    fn items_are_read_with_and_without_their_optional_fields() {
        let json = r#"[
            {"type":"file","path":"a/b","size":3,"xetHash":"ff","mtime":"2025-12-01T00:00:00.250Z",
             "uploadedAt":"2025-12-01T01:02:03.004Z","contentType":"text/plain","more":{}},
            {"type":"file","path":"c","mtime":1764547200000},
            {"type":"directory","path":"d","uploadedAt":null}]"#;
        let items: Vec<Item> = serde_json::from_str(json).unwrap();
        let items: Vec<TreeItem> = items.into_iter().map(TreeItem::from).collect();
        assert_eq!(items[0].size, Some(3));
        assert_eq!(items[0].xet_hash.as_deref(), Some("ff"));
        assert_eq!(
            items[0].uploaded_at.unwrap().timestamp_millis(),
            1_764_550_923_004
        );
        assert_eq!(
            items[0].mtime.unwrap().timestamp_millis(),
            1_764_547_200_250
        );
        assert_eq!(items[0].content_type.as_deref(), Some("text/plain"));
        assert_eq!(
            items[1].mtime.unwrap().timestamp_millis(),
            1_764_547_200_000
        );
        assert_eq!((items[1].size, items[1].uploaded_at), (None, None));
        assert_eq!(items[2].kind, ItemKind::Directory);
        let odd: Item = serde_json::from_str(r#"{"type":"symlink","path":"a"}"#).unwrap();
        assert_eq!(TreeItem::from(odd).kind, ItemKind::Other);
    }

    #[test]
    fn lines_are_written_as_the_hub_reads_them() {
        let line = |op: &BatchOp| serde_json::to_string(&BatchLine::from(op)).unwrap();
        let add = BatchOp::Add {
            path: "a b\"".into(),
            xet_hash: "ff".into(),
            mtime_ms: Some(1_764_547_200_000),
            content_type: Some("text/plain".into()),
        };
        assert_eq!(
            line(&add),
            r#"{"type":"addFile","path":"a b\"","xetHash":"ff","mtime":1764547200000,"contentType":"text/plain"}"#
        );
        let copy = BatchOp::Copy {
            path: "b".into(),
            xet_hash: "ff".into(),
            source: BucketId {
                namespace: "o".into(),
                name: "n".into(),
            },
            mtime_ms: None,
            content_type: None,
        };
        assert_eq!(
            line(&copy),
            r#"{"type":"copyFile","path":"b","xetHash":"ff","sourceRepoType":"bucket","sourceRepoId":"o/n"}"#
        );
        let delete = BatchOp::Delete { path: "c".into() };
        assert_eq!(line(&delete), r#"{"type":"deleteFile","path":"c"}"#);
    }

    #[test]
    fn a_report_needs_all_four_fields() {
        let full =
            r#"{"success":false,"processed":1,"succeeded":0,"failed":[{"path":"a","error":"e"}]}"#;
        let report: BatchReport = serde_json::from_str(full).unwrap();
        assert_eq!(report.failed[0].error, "e");
        for part in [
            r#"{"processed":1,"succeeded":1,"failed":[]}"#,
            r#"{"success":true,"succeeded":1,"failed":[]}"#,
            r#"{"success":true,"processed":1,"failed":[]}"#,
            r#"{"success":true,"processed":1,"succeeded":1}"#,
            r#"{"error":"bad path"}"#,
        ] {
            assert!(serde_json::from_str::<BatchReport>(part).is_err(), "{part}");
        }
    }

    #[test]
    fn only_what_is_set_goes_into_a_new_bucket() {
        let body =
            |options: &CreateBucket| serde_json::to_string(&CreateBody::from(options)).unwrap();
        assert_eq!(body(&CreateBucket::default()), "{}");
        let options = CreateBucket {
            private: Some(true),
            region: Some("eu".into()),
            resource_group_id: Some("r".into()),
        };
        assert_eq!(
            body(&options),
            r#"{"private":true,"region":"eu","resourceGroupId":"r"}"#
        );
    }
}
