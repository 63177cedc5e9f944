//! Tests of the media store in a directory and in a bucket of a real S3 server.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use recado_domain::media::{MediaFile, MediaPath, MediaStore, MediaStoreError, MediaType};
use recado_domain::shared::AccountId;
use recado_gateways::media::ObjectMedia;
use recado_simulators::raw::{RawServer, Reply};
use recado_testkit::DEADLINE;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;

/// A temporary directory, deleted on drop.
pub(crate) struct Directory(TempDir);

impl Directory {
    pub(crate) fn new() -> Self {
        Self(TempDir::with_prefix("recado-media-").unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// All files below the directory.
    fn files(&self) -> Vec<PathBuf> {
        fn walk(path: &Path, files: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(path).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, files)
                } else {
                    files.push(path)
                }
            }
        }
        let mut files = Vec::new();
        walk(self.path(), &mut files);
        files
    }
}

fn unique() -> u128 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    now.as_nanos() << 32 | u128::from(std::process::id()) << 16 | u128::from(NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn path(kind: MediaType) -> MediaPath {
    MediaPath {
        account_id: AccountId(Uuid::from_u128(9)),
        id: Uuid::from_u128(unique()),
        kind,
    }
}

pub(crate) fn directory_store(directory: &Directory) -> Arc<dyn MediaStore> {
    let url = format!("file://{}", directory.path().display());
    Arc::new(ObjectMedia::open(Some(&url), []).unwrap())
}

/// Starts an S3 server on a directory, with one bucket, and returns a store on it.
async fn bucket_store(directory: &Directory, secret: &str) -> ObjectMedia {
    bucket_store_with_gate(Arc::new(PutGate::new(Semaphore::MAX_PERMITS)), directory, secret).await
}

/// Delays every PUT until a permit is free, and records the methods of completed requests.
struct PutGate {
    put_arrived: Notify,
    permits: Semaphore,
    completed: Mutex<Vec<Method>>,
}

impl PutGate {
    fn new(permits: usize) -> Self {
        Self {
            put_arrived: Notify::new(),
            permits: Semaphore::new(permits),
            completed: Mutex::default(),
        }
    }

    fn has_completed(&self, method: &Method) -> bool {
        self.completed.lock().unwrap().contains(method)
    }
}

async fn bucket_store_with_gate(gate: Arc<PutGate>, directory: &Directory, secret: &str) -> ObjectMedia {
    std::fs::create_dir_all(directory.path().join("media")).unwrap();
    let mut service = S3ServiceBuilder::new(s3s_fs::FileSystem::new(directory.path()).unwrap());
    service.set_auth(SimpleAuth::from_single("AKIAEXAMPLE", "right"));
    let service = service.build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (service, gate) = (service.clone(), gate.clone());
            tokio::spawn(async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let (service, gate) = (service.clone(), gate.clone());
                    async move {
                        let method = request.method().clone();
                        if method == Method::PUT {
                            gate.put_arrived.notify_one();
                            gate.permits.acquire().await.unwrap().forget();
                        }
                        let response = service.call(request.map(s3s::Body::from)).await;
                        gate.completed.lock().unwrap().push(method);
                        response
                    }
                });
                let server = Builder::new(TokioExecutor::new());
                server.serve_connection(TokioIo::new(stream), service).await.ok();
            });
        }
    });
    open_bucket(&endpoint, secret)
}

fn open_bucket(endpoint: &str, secret: &str) -> ObjectMedia {
    let environment = [
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", secret),
        ("AWS_REGION", "us-east-1"),
        ("AWS_BUCKET", "another"),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    ObjectMedia::open(Some("s3://media/some/prefix/"), environment).unwrap()
}

pub(crate) async fn put(store: &dyn MediaStore, path: &MediaPath, content: &[u8]) {
    let mut write = store.begin(path).await.unwrap();
    let mut rest = Bytes::copy_from_slice(content);
    for size in [100_000, 4096, 4095, 1].into_iter().cycle() {
        if rest.is_empty() {
            break;
        }
        write.write(rest.split_to(size.min(rest.len()))).await.unwrap();
    }
    write.commit().await.unwrap();
}

async fn read(store: &dyn MediaStore, path: &MediaPath, from: u64) -> Vec<u8> {
    let mut chunks = store.read(path, from).await.unwrap().unwrap();
    let mut content = Vec::new();
    while let Some(chunk) = chunks.next().await {
        content.extend_from_slice(&chunk.unwrap());
    }
    content
}

/// Bytes with a pattern that reveals a shifted or reordered part.
pub(crate) fn content(length: usize) -> Vec<u8> {
    (0..length)
        .map(|offset| u8::try_from((offset * 7 + offset / 251) % 251).unwrap())
        .collect()
}

async fn assert_stores_files(store: Arc<dyn MediaStore>, directory: &Directory) {
    // Smaller than a part, several parts of a directory, one and more parts of a bucket.
    for length in [0, 1, 600_000, 5 * 1024 * 1024, 11_000_000] {
        let (path, content) = (path(MediaType::Pdf), content(length));
        assert_eq!(store.size(&path).await.unwrap(), None);
        assert!(store.read(&path, 0).await.unwrap().is_none());
        put(store.as_ref(), &path, &content).await;
        assert_eq!(store.size(&path).await.unwrap(), u64::try_from(length).ok());
        assert!(read(store.as_ref(), &path, 0).await == content, "{length}");
        if length > 0 {
            let from = length / 2 + 1;
            let rest = read(
                store.as_ref(),
                &path,
                u64::try_from(from).unwrap_or(0).min(u64::try_from(length - 1).unwrap()),
            )
            .await;
            assert!(rest == content[from.min(length - 1)..], "{length}");
        }
        let file = MediaFile::find(&store, path).await.unwrap().unwrap();
        assert_eq!(file.size, u64::try_from(length).unwrap());
        store.delete(&path).await.unwrap();
        store.delete(&path).await.unwrap();
        assert_eq!(store.size(&path).await.unwrap(), None);
    }
    let remaining: Vec<PathBuf> = directory.files().into_iter().filter(|file| is_content(file)).collect();
    assert_eq!(remaining, Vec::<PathBuf>::new());
}

/// Whether a file is content, not internal data of the S3 server.
fn is_content(file: &Path) -> bool {
    file.file_name().is_some_and(|name| {
        !name.to_string_lossy().starts_with(".bucket-") && !name.to_string_lossy().ends_with(".internal.json")
    })
}

/// Drops uploads before their commit and waits until their parts are deleted.
async fn assert_dropped_upload_is_deleted(store: Arc<dyn MediaStore>, directory: &Directory) {
    for length in [10, 600_000, 11_000_000] {
        let path = path(MediaType::Pdf);
        let mut write = store.begin(&path).await.unwrap();
        write.write(content(length).into()).await.unwrap();
        assert_eq!(store.size(&path).await.unwrap(), None, "the file is not visible yet");
        drop(write);
        let deadline = Instant::now() + DEADLINE;
        while directory.files().iter().any(|file| is_content(file)) {
            assert!(Instant::now() < deadline, "{:?}", directory.files());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(store.size(&path).await.unwrap(), None);
    }
}

#[tokio::test]
async fn directory_stores_files() {
    let directory = Directory::new();
    assert_stores_files(directory_store(&directory), &directory).await;
}

#[tokio::test]
async fn directory_deletes_a_dropped_upload() {
    let directory = Directory::new();
    assert_dropped_upload_is_deleted(directory_store(&directory), &directory).await;
}

#[tokio::test]
async fn bucket_stores_files_under_its_prefix() {
    let directory = Directory::new();
    let store: Arc<dyn MediaStore> = Arc::new(bucket_store(&directory, "right").await);
    let path = path(MediaType::Png);
    put(store.as_ref(), &path, b"png").await;
    let file = directory.path().join("media/some/prefix").join(path.to_string());
    assert_eq!(std::fs::read(file).unwrap(), b"png");
    store.delete(&path).await.unwrap();
    assert_stores_files(store, &directory).await;
}

#[tokio::test]
async fn bucket_deletes_a_dropped_upload() {
    let directory = Directory::new();
    assert_dropped_upload_is_deleted(Arc::new(bucket_store(&directory, "right").await), &directory).await;
}

/// Waits until the bucket has completed a request with this method and has no content left.
async fn wait_for_deletion(gate: &PutGate, method: Method, directory: &Directory) {
    let deadline = Instant::now() + DEADLINE;
    while !gate.has_completed(&method) || directory.files().iter().any(|file| is_content(file)) {
        assert!(Instant::now() < deadline, "{:?}", directory.files());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn abort_waits_for_the_part_in_flight() {
    for is_discarded in [false, true] {
        let (directory, gate) = (Directory::new(), Arc::new(PutGate::new(0)));
        let store = bucket_store_with_gate(gate.clone(), &directory, "right").await;
        let path = path(MediaType::Pdf);
        let mut write = store.begin(&path).await.unwrap();
        let mut writing = write.write(content(11_000_000).into());
        // Two parts and a rest: the second part waits for the first, which waits for a permit.
        tokio::select! {
            _ = &mut writing => panic!("a part is still being written"),
            () = gate.put_arrived.notified() => {}
        }
        drop(writing);
        if is_discarded {
            // `discard` waits for the part in flight. The abort continues although this wait is dropped.
            let discarded = tokio::time::timeout(Duration::from_millis(1), write.discard()).await;
            assert!(discarded.is_err(), "a part is still being written");
        } else {
            drop(write);
        }
        // By the time these requests are answered, an abort that was sent before them is answered too.
        for _ in 0..20 {
            assert_eq!(store.size(&path).await.unwrap(), None);
        }
        assert!(!gate.has_completed(&Method::DELETE), "the abort must wait for the part");
        gate.permits.add_permits(1);
        wait_for_deletion(&gate, Method::DELETE, &directory).await;
    }
}

#[tokio::test]
async fn file_of_a_dropped_commit_is_deleted() {
    let (directory, gate) = (Directory::new(), Arc::new(PutGate::new(0)));
    let store = bucket_store_with_gate(gate.clone(), &directory, "right").await;
    let path = path(MediaType::Pdf);
    let mut write = store.begin(&path).await.unwrap();
    write.write(content(10).into()).await.unwrap();
    let mut commit = write.commit();
    tokio::select! {
        _ = &mut commit => panic!("the file is still being written"),
        () = gate.put_arrived.notified() => {}
    }
    drop(commit);
    gate.permits.add_permits(1);
    // The store deletes files with a POST that lists them.
    wait_for_deletion(&gate, Method::POST, &directory).await;
    assert!(gate.has_completed(&Method::PUT));
    assert_eq!(store.size(&path).await.unwrap(), None);
}

/// Deletes one account's files and asserts that those of accounts that sort before and after it remain.
async fn assert_deletes_only_one_account(store: Arc<dyn MediaStore>, directory: &Directory) {
    let path_of = |account: u128, id: u128| MediaPath {
        account_id: AccountId(Uuid::from_u128(account)),
        id: Uuid::from_u128(id),
        kind: MediaType::Png,
    };
    for account in [8, 9, 10, 9 << 120] {
        for id in 0..5 {
            put(store.as_ref(), &path_of(account, id), b"png").await;
        }
    }
    // More files than one page of a listing, and one file of several parts.
    let bulk = (5..1_100).map(|id| path_of(9, id));
    let puts = bulk.map(|path| {
        let store = store.clone();
        async move { put(store.as_ref(), &path, b"png").await }
    });
    futures_util::stream::iter(puts)
        .buffer_unordered(8)
        .collect::<Vec<_>>()
        .await;
    put(store.as_ref(), &path_of(9, 9_999), &content(11_000_000)).await;
    for _ in 0..2 {
        store.delete_account(path_of(9, 0).account_id).await.unwrap();
        let remaining = directory.files().into_iter().filter(|file| is_content(file));
        let remaining: Vec<String> = remaining.map(|file| file.display().to_string()).collect();
        assert_eq!(remaining.len(), 15, "{remaining:?}");
        let deleted = format!("/{}/", path_of(9, 0).account_id);
        assert!(remaining.iter().all(|file| !file.contains(&deleted)), "{remaining:?}");
    }
    for account in [8, 10, 9 << 120] {
        assert_eq!(store.size(&path_of(account, 4)).await.unwrap(), Some(3));
    }
    assert_eq!(store.size(&path_of(9, 4)).await.unwrap(), None);
}

#[tokio::test]
async fn directory_deletes_only_the_files_of_one_account() {
    let directory = Directory::new();
    assert_deletes_only_one_account(directory_store(&directory), &directory).await;
}

#[tokio::test]
async fn bucket_deletes_only_the_files_of_one_account() {
    let directory = Directory::new();
    let store = Arc::new(bucket_store(&directory, "right").await);
    // A key beside the prefix belongs to another application.
    let foreign = directory.path().join("media/some/prefix2");
    std::fs::create_dir_all(&foreign).unwrap();
    std::fs::write(foreign.join(".bucket-foreign"), b"x").unwrap();
    assert_deletes_only_one_account(store, &directory).await;
    assert!(foreign.join(".bucket-foreign").exists());
}

#[tokio::test]
async fn bucket_with_wrong_secret_fails() {
    let directory = Directory::new();
    let store = bucket_store(&directory, "wrong").await;
    let path = path(MediaType::Png);
    let mut write = store.begin(&path).await.unwrap();
    write.write(Bytes::from_static(b"png")).await.unwrap();
    let failed = write.commit().await;
    assert!(matches!(failed, Err(MediaStoreError::Failed(_))), "{failed:?}");
    assert!(matches!(store.size(&path).await, Err(MediaStoreError::Failed(_))));
}

#[tokio::test]
async fn bucket_stores_response_headers_of_a_file() {
    let server = RawServer::replying(vec![Reply::http("200 OK", "")]).unwrap();
    let store = open_bucket(server.origin(), "right");
    let path = path(MediaType::Webp);
    let mut write = store.begin(&path).await.unwrap();
    write.write(Bytes::from_static(b"webp")).await.unwrap();
    // The response does not matter here.
    write.commit().await.ok();
    let head = server.heads().remove(0).to_lowercase();
    assert!(head.starts_with(&format!("put /media/some/prefix/{path} ")), "{head}");
    for header in [
        "content-type: image/webp",
        "content-disposition: inline",
        "cache-control: public, max-age=31536000, immutable",
    ] {
        assert!(head.contains(header), "{head}");
    }
}

#[tokio::test]
async fn media_store_that_is_down_or_unset_fails() {
    let path = path(MediaType::Png);
    let unset = ObjectMedia::open(None, []).unwrap();
    assert!(matches!(unset.size(&path).await, Err(MediaStoreError::NotConfigured)));
    assert!(matches!(
        unset.begin(&path).await.err(),
        Some(MediaStoreError::NotConfigured)
    ));
    let broken = RawServer::replying(vec![Reply::http(
        "403 Forbidden",
        "<Error><Code>AccessDenied</Code></Error>",
    )])
    .unwrap();
    let store = open_bucket(broken.origin(), "right");
    assert!(matches!(store.size(&path).await, Err(MediaStoreError::Failed(_))));
    // A 503 is retried, and the next response is a success.
    let busy = Reply::http("503 Slow Down", "<Error><Code>SlowDown</Code></Error>");
    let etag = Reply::bytes("HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 0\r\n\r\n");
    let slow = RawServer::replying(vec![busy, etag]).unwrap();
    put(&open_bucket(slow.origin(), "right"), &path, b"png").await;
    assert_eq!(slow.heads().len(), 2);
}

#[tokio::test]
async fn invalid_media_store_url_error_hides_the_value() {
    let plain = [
        ("AWS_ENDPOINT_URL", "http://minio.example"),
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
    ];
    let plain = plain.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let store = ObjectMedia::open(Some("s3://media"), plain).unwrap();
    let refused = store.size(&path(MediaType::Png)).await;
    assert!(
        matches!(refused, Err(MediaStoreError::Failed(_))),
        "secrets must not be sent without TLS: {refused:?}"
    );
    for url in [
        "s3:///prefix",
        "gs://x",
        "file://relative",
        "s3://b/a//b/../c",
        "file:///proc/none/media",
    ] {
        let error = ObjectMedia::open(Some(url), []).err().unwrap();
        assert!(!error.contains(url), "{error}");
    }
}
