//! `HfBucket` beside its peers on one LocalHub: throughput, requests and memory.
//!
//! `cargo bench --all-features --bench compare [-- quick] [-- only=<part of a shape's name>]`
//!
//! The hub runs in a process of its own, so that this one's memory is the client's. Clients take
//! turns within a round, each on fresh data that does not compress; figures are medians of five
//! rounds (one with `quick`).

mod clients;
mod hub;
mod l2;
mod measure;

use std::time::Duration;

use bytes::Bytes;
use clients::{Client, Hashes, HfHub, OpenDal, Ours, Raw};
use hub::Hub;
use measure::{Figures, median};

/// Objects, bytes of each, and how many are under way at a time.
#[derive(Debug, Clone, Copy)]
struct Shape {
    count: usize,
    size: usize,
    concurrency: usize,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

const SHAPES: [Shape; 4] = [
    Shape::new(256, 64 * KIB, 32),
    Shape::new(64, MIB, 64),
    Shape::new(32, 4 * MIB, 8),
    Shape::new(8, 32 * MIB, 4),
];

/// Objects of the listing.
const LISTED: usize = 10_000;

impl Shape {
    const fn new(count: usize, size: usize, concurrency: usize) -> Self {
        Self {
            count,
            size,
            concurrency,
        }
    }

    fn name(self) -> String {
        let size = match self.size / MIB {
            0 => format!("{} KiB", self.size / KIB),
            mib => format!("{mib} MiB"),
        };
        format!("{} x {size}, {} at a time", self.count, self.concurrency)
    }

    fn bytes(self) -> usize {
        self.count * self.size
    }
}

fn main() {
    if std::env::args().any(|argument| argument == hub::SERVE) {
        return hub::serve();
    }
    let rounds = if std::env::args().any(|argument| argument == "quick") {
        1
    } else {
        5
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let only =
        std::env::args().find_map(|argument| Some(argument.strip_prefix("only=")?.to_owned()));
    let is_wanted = |name: &str| {
        only.as_ref()
            .is_none_or(|only| name.contains(only.as_str()))
    };
    let shapes = SHAPES.into_iter().filter(|shape| is_wanted(&shape.name()));
    runtime.block_on(async {
        for shape in shapes.clone() {
            compare(shape, rounds).await;
        }
        if is_wanted("list") {
            listing(rounds).await;
        }
        for shape in shapes {
            l2::compare(shape, rounds).await;
        }
    });
}

/// What one client did in one shape, by operation.
#[derive(Default)]
struct Row {
    put: Vec<Figures>,
    head: Vec<Figures>,
    get: Vec<Figures>,
    get_known: Vec<Figures>,
    range: Vec<Figures>,
    delete: Vec<Figures>,
}

async fn compare(shape: Shape, rounds: usize) {
    let hub = Hub::start();
    let hashes = Hashes::default();
    let clients: Vec<Box<dyn Client>> = vec![
        Box::new(Ours::new(&hub).await),
        Box::new(Raw::new(&hub, &hashes).await),
        Box::new(OpenDal::new(&hub).await),
        Box::new(HfHub::new(&hub).await),
    ];
    let mut rows: Vec<Row> = clients.iter().map(|_| Row::default()).collect();
    let mut seed = 0;
    for round in 0..rounds {
        for (client, row) in clients.iter().zip(&mut rows) {
            seed += 1;
            let objects: Vec<(String, Bytes)> = (0..shape.count)
                .map(|n| {
                    let path = format!("{}/{round}/{n}", client.name());
                    (path, measure::noise(seed * 1000 + n as u64, shape.size))
                })
                .collect();
            round_of(&hub, shape, client.as_ref(), objects, row).await;
        }
    }
    println!("\n### {}\n", shape.name());
    println!(
        "| client | put | Hub calls | peak | get | Hub calls | peak | range | head | Hub calls | delete | Hub calls |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (client, row) in clients.iter().zip(&rows) {
        let bytes = shape.bytes() as f64;
        let speed = |figures: &[Figures]| measure::megabytes_per_second(bytes, figures);
        let per_second = |figures: &[Figures]| measure::per_second(shape.count, figures);
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            client.name(),
            speed(&row.put),
            measure::calls(&row.put),
            measure::peak(&row.put),
            speed(&row.get),
            measure::calls(&row.get),
            measure::peak(&row.get),
            per_second(&row.range),
            per_second(&row.head),
            measure::calls(&row.head),
            per_second(&row.delete),
            measure::calls(&row.delete),
        );
    }
    let time = |figures: &[Figures]| median(figures, |one| one.time.as_secs_f64());
    let [ours, raw, opendal, ..] = rows.as_slice() else {
        return;
    };
    for (what, ratio) in [
        ("put against raw hf-xet", time(&raw.put) / time(&ours.put)),
        ("get against raw hf-xet", time(&raw.get) / time(&ours.get)),
        (
            "get of known versions against raw hf-xet",
            time(&raw.get) / time(&ours.get_known),
        ),
        ("put against OpenDAL", time(&opendal.put) / time(&ours.put)),
        ("get against OpenDAL", time(&opendal.get) / time(&ours.get)),
        (
            "head against OpenDAL",
            time(&opendal.head) / time(&ours.head),
        ),
    ] {
        println!("- {what}: {ratio:.2}");
    }
}

async fn round_of(
    hub: &Hub,
    shape: Shape,
    client: &dyn Client,
    objects: Vec<(String, Bytes)>,
    row: &mut Row,
) {
    let paths: Vec<String> = objects.iter().map(|(path, _)| path.clone()).collect();
    let at_once = shape.concurrency;
    let expected: u64 = objects.iter().map(|(_, data)| measure::sum(data)).sum();
    row.put
        .push(measure::measure(hub, client.put(objects, at_once)).await.1);
    if let Some(head) = client.head(&paths, shape.count) {
        row.head.push(measure::measure(hub, head).await.1);
    }
    let (sum, figures) = measure::measure(hub, client.get(&paths, at_once)).await;
    assert_eq!(sum, expected, "{} reads what it wrote", client.name());
    row.get.push(figures);
    if let Some(get) = client.get_known(&paths, at_once) {
        let (sum, figures) = measure::measure(hub, get).await;
        assert_eq!(sum, expected, "{} reads what it wrote", client.name());
        row.get_known.push(figures);
    }
    let range = (shape.size as u64 / 2)..(shape.size as u64 / 2 + 4096);
    if let Some(ranges) = client.range(&paths, range, at_once) {
        row.range.push(measure::measure(hub, ranges).await.1);
    }
    if let Some(delete) = client.delete(&paths, at_once) {
        row.delete.push(measure::measure(hub, delete).await.1);
    }
}

async fn listing(rounds: usize) {
    let hub = Hub::start();
    let ours = Ours::new(&hub).await;
    let objects = (0..LISTED)
        .map(|n| (format!("listed/{n:05}"), Bytes::from(format!("{n}"))))
        .collect();
    ours.put(objects, 1000).await;
    let clients: Vec<Box<dyn Client>> = vec![
        Box::new(ours),
        Box::new(OpenDal::new(&hub).await),
        Box::new(HfHub::new(&hub).await),
    ];
    println!("\n### List {LISTED} objects\n\n| client | time | Hub calls |\n|---|---|---|");
    for client in &clients {
        let mut figures = Vec::new();
        for _ in 0..rounds {
            let Some(list) = client.list("listed/") else {
                continue;
            };
            let (listed, one) = measure::measure(&hub, list).await;
            assert_eq!(listed, LISTED, "{}", client.name());
            figures.push(one);
        }
        let time = Duration::from_secs_f64(median(&figures, |one| one.time.as_secs_f64()));
        println!(
            "| {} | {:.0} ms | {} |",
            client.name(),
            time.as_secs_f64() * 1000.0,
            measure::calls(&figures)
        );
    }
}
