use super::*;
use reqwest::header::HeaderValue;

fn headers(left: u64, reset: u64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let value = format!("\"api\";r={left};t={reset}");
    headers.insert("ratelimit", HeaderValue::from_str(&value).unwrap());
    let policy = HeaderValue::from_static("\"fixed window\";\"api\";q=100;w=300");
    headers.insert("ratelimit-policy", policy);
    headers
}

fn in_secs(secs: u64) -> Instant {
    Instant::now() + Duration::from_secs(secs)
}

fn budget() -> Arc<Budget> {
    Arc::new(Budget::new(Class::Api))
}

/// A budget that has been told what is left.
async fn told(left: u64, reset: u64) -> Arc<Budget> {
    let budget = budget();
    let reserved = budget.reserve(in_secs(1)).await.unwrap();
    reserved.answered(StatusCode::OK, &headers(left, reset));
    budget
}

/// The Hub's fixed window of 100 requests in 300 s, on the test's clock.
struct Hub {
    state: Mutex<(Instant, u64)>,
    refused: std::sync::atomic::AtomicUsize,
}

impl Hub {
    fn new() -> Self {
        Self {
            state: Mutex::new((Instant::now(), 0)),
            refused: 0.into(),
        }
    }

    fn answer(&self) -> (StatusCode, HeaderMap) {
        let mut state = self.state.lock();
        let window = Duration::from_secs(300);
        if state.0.elapsed() >= window {
            *state = (Instant::now(), 0);
        }
        let reset = (window - state.0.elapsed()).as_secs_f64().ceil() as u64;
        if state.1 == 100 {
            self.refused
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            return (StatusCode::TOO_MANY_REQUESTS, headers(0, reset));
        }
        state.1 += 1;
        (StatusCode::OK, headers(100 - state.1, reset))
    }

    async fn ask(&self, budget: &Arc<Budget>, latency: Duration) -> StatusCode {
        let reserved = budget.reserve(in_secs(3600)).await.unwrap();
        tokio::time::sleep(latency).await;
        let (status, headers) = self.answer();
        tokio::time::sleep(latency).await;
        reserved.answered(status, &headers);
        status
    }
}

#[tokio::test(start_paused = true)]
async fn many_callers_together_stay_within_the_limit() {
    let (hub, budget) = (Hub::new(), budget());
    let asks = (0..500).map(|n| hub.ask(&budget, Duration::from_millis(20 + n % 7)));
    let statuses = futures::future::join_all(asks).await;
    assert!(statuses.iter().all(|status| *status == StatusCode::OK));
    assert_eq!(hub.refused.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn five_windows_of_requests_take_five_windows() {
    let (hub, budget, start) = (Hub::new(), budget(), Instant::now());
    let asks = (0..500).map(|_| hub.ask(&budget, Duration::from_millis(20)));
    futures::future::join_all(asks).await;
    let took = start.elapsed().as_secs();
    assert!((1200..=1520).contains(&took), "{took} s");
}

#[tokio::test(start_paused = true)]
async fn callers_go_in_the_order_in_which_they_came() {
    let budget = told(0, 50).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..20)
        .map(|n| {
            let (budget, order) = (Arc::clone(&budget), Arc::clone(&order));
            tokio::spawn(async move {
                let reserved = budget.reserve(in_secs(1000)).await.unwrap();
                order.lock().push(n);
                reserved.answered(StatusCode::OK, &headers(50, 300));
            })
        })
        .collect();
    let start = Instant::now();
    futures::future::join_all(tasks).await;
    assert_eq!(*order.lock(), (0..20).collect::<Vec<_>>());
    assert_eq!(start.elapsed(), Duration::from_secs(51));
}

#[tokio::test(start_paused = true)]
async fn whoever_cannot_wait_long_enough_learns_it_at_once() {
    let (budget, start) = (told(0, 55).await, Instant::now());
    let waiting = {
        let budget = Arc::clone(&budget);
        tokio::spawn(async move { budget.reserve(in_secs(60)).await.is_ok() })
    };
    tokio::task::yield_now().await;
    let error = budget.reserve(in_secs(20)).await.err().unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(
        error.to_string(),
        "nothing was sent: the Hub allows no more 'api' requests for now (limit of 'api': 100 \
         requests per 300 s); the next may go in 56.0 s and only 20.0 s are left"
    );
    assert!(waiting.await.unwrap());
    assert_eq!(start.elapsed(), Duration::from_secs(56));
}

#[tokio::test(start_paused = true)]
async fn whoever_stands_behind_others_gives_up_at_the_deadline() {
    let budget = budget();
    // As many as may go before the first answer are under way and stay so.
    let mut held = Vec::new();
    for _ in 0..32 {
        held.push(budget.reserve(in_secs(1)).await.unwrap());
    }
    let start = Instant::now();
    let error = budget.reserve(in_secs(7)).await.err().unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(7));
    assert_eq!(
        error.to_string(),
        "nothing was sent: the Hub allows no more 'api' requests for now; others were waiting \
         before this one, which gave up after 7.0 s"
    );
    // One that ends without an answer makes room.
    held.pop();
    assert!(budget.reserve(in_secs(7)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn whoever_gives_up_leaves_the_turn_to_the_next() {
    let budget = told(0, 10).await;
    let doomed = {
        let budget = Arc::clone(&budget);
        tokio::spawn(async move { budget.reserve(in_secs(1000)).await.is_ok() })
    };
    let next = {
        let budget = Arc::clone(&budget);
        tokio::spawn(async move { budget.reserve(in_secs(1000)).await.is_ok() })
    };
    tokio::task::yield_now().await;
    doomed.abort();
    assert!(doomed.await.unwrap_err().is_cancelled());
    let start = Instant::now();
    assert!(next.await.unwrap());
    assert_eq!(start.elapsed(), Duration::from_secs(11));
}

#[tokio::test(start_paused = true)]
async fn news_of_a_new_window_end_the_wait() {
    let budget = budget();
    let slow = budget.reserve(in_secs(1)).await.unwrap();
    let fast = budget.reserve(in_secs(1)).await.unwrap();
    fast.answered(StatusCode::OK, &headers(0, 200));
    let start = Instant::now();
    let waiting = {
        let budget = Arc::clone(&budget);
        tokio::spawn(async move { budget.reserve(in_secs(1000)).await.is_ok() })
    };
    tokio::time::sleep(Duration::from_secs(5)).await;
    // Somebody has raised the limit.
    slow.answered(StatusCode::OK, &headers(90, 295));
    assert!(waiting.await.unwrap());
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_the_header_closes_the_window_too() {
    let budget = budget();
    let mut retry_after = HeaderMap::new();
    retry_after.insert("retry-after", HeaderValue::from_static("40"));
    let reserved = budget.reserve(in_secs(1)).await.unwrap();
    reserved.answered(StatusCode::TOO_MANY_REQUESTS, &retry_after);
    let start = Instant::now();
    assert!(budget.reserve(in_secs(100)).await.is_ok());
    assert_eq!(start.elapsed(), Duration::from_secs(40));
}

#[test]
fn clients_of_one_endpoint_and_token_share() {
    let url = |text: &str| Url::parse(text).unwrap();
    let one = Budgets::of(&url("http://hub.test:1/a"));
    let other = Budgets::of(&url("http://hub.test:1/b"));
    assert!(Arc::ptr_eq(&one, &other));
    assert!(!Arc::ptr_eq(&one, &Budgets::of(&url("http://hub.test:2"))));
    let (alice, bob) = (Secret::new("hf_alice"), Secret::new("hf_bob"));
    let budget = one.budget(Some(&alice), Class::Api);
    assert!(Arc::ptr_eq(
        &budget,
        &other.budget(Some(&alice), Class::Api)
    ));
    for apart in [
        one.budget(Some(&bob), Class::Api),
        one.budget(None, Class::Api),
        one.budget(Some(&alice), Class::Resolvers),
    ] {
        assert!(!Arc::ptr_eq(&budget, &apart));
    }
    drop((one, other));
    // Nobody's client is left: the next begins anew.
    let anew = Budgets::of(&url("http://hub.test:1"));
    assert!(!Arc::ptr_eq(
        &budget,
        &anew.budget(Some(&alice), Class::Api)
    ));
}
