//! An HTTP server in a few lines that can do what no proper one does: hang up half-way.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use url::Url;

/// What to answer, and then to hang up.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Bytes(String),
    /// Never.
    Hang,
}

impl Answer {
    /// Headers as lines without line ends.
    pub(super) fn new(status: u16, headers: &[&str], body: &str) -> Self {
        Self::cut(status, headers, body, body.len())
    }

    pub(super) fn json(body: &str) -> Self {
        Self::new(200, &["content-type: application/json"], body)
    }

    /// Announces `len` bytes, but hangs up after `body`.
    pub(super) fn cut(status: u16, headers: &[&str], body: &str, len: usize) -> Self {
        let mut head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n");
        head.push_str(&format!("content-length: {len}\r\n"));
        for header in headers {
            head.push_str(header);
            head.push_str("\r\n");
        }
        Self::Bytes(format!("{head}\r\n{body}"))
    }

    /// In one chunk, so without a length.
    pub(super) fn chunked(status: u16, headers: &[&str], body: &str) -> Self {
        let mut head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n");
        head.push_str("transfer-encoding: chunked\r\n");
        for header in headers {
            head.push_str(header);
            head.push_str("\r\n");
        }
        let len = body.len();
        Self::Bytes(format!("{head}\r\n{len:x}\r\n{body}\r\n0\r\n\r\n"))
    }

    /// Hangs up at once.
    pub(super) fn drop() -> Self {
        Self::Bytes(String::new())
    }
}

#[derive(Debug, Clone)]
pub(super) struct Request {
    /// `GET /path?query`.
    pub(super) line: String,
    headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    pub(super) fn authorization(&self) -> Option<&str> {
        self.header("authorization")
    }
}

#[derive(Debug, Default)]
struct State {
    answers: VecDeque<Answer>,
    requests: Vec<Request>,
}

/// Answers in order, one request per connection; then 500 for ever.
pub(super) struct Server {
    url: Url,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(super) async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        state.lock().answers.extend(answers);
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self {
            url: Url::parse(&format!("http://{address}")).unwrap(),
            state,
            task,
        }
    }

    pub(super) fn then(&self, answer: Answer) {
        self.state.lock().answers.push_back(answer);
    }

    pub(super) fn url(&self) -> Url {
        self.url.clone()
    }

    /// An absolute URL at this server.
    pub(super) fn at(&self, path: &str) -> String {
        self.url.join(path).unwrap().into()
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.state.lock().requests.clone()
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.requests().into_iter().map(|r| r.line).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let Some(request) = read_request(&mut stream).await else {
        return;
    };
    let answer = {
        let mut state = state.lock();
        state.requests.push(request);
        state.answers.pop_front()
    };
    match answer.unwrap_or_else(|| Answer::new(500, &[], "nothing left to answer")) {
        Answer::Bytes(bytes) => {
            // The client may be gone already.
            let _ = stream.write_all(bytes.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
        Answer::Hang => std::future::pending().await,
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).ok()?;
    let mut lines = head.split("\r\n");
    let line = lines.next()?.strip_suffix(" HTTP/1.1")?.to_owned();
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let len = headers.iter().find(|(name, _)| name == "content-length");
    let len: usize = len.map_or(Some(0), |(_, len)| len.parse().ok())?;
    while bytes.len() < head_end + 4 + len {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some(Request {
        line,
        headers,
        body: String::from_utf8(bytes[head_end + 4..].to_vec()).ok()?,
    })
}
