//! Kubernetes' Container Runtime Interface, which containerd and CRI-O speak, and containerd's own
//! interface for what others (nerdctl, ctr) run with it. gRPC, one call each.

use std::collections::HashMap;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use prost::Message;

use super::http::Server;
use super::messages::{
    ById, ContainerStatusResponse, GetContainerResponse, PodSandboxStatusResponse,
};
use super::{Answer, Fail, Names};
use crate::container::Found;
use crate::text::shown;

/// Longest name that is kept, characters; Kubernetes' own limit is 253.
const NAME: usize = 256;
/// Labels of one container that are kept, and the longest value, characters.
const LABELS: usize = 64;
const LABEL: usize = 512;
/// gRPC's codes.
const NOT_FOUND: &str = "5";
const UNIMPLEMENTED: &str = "12";
/// Since containerd 1.6 and CRI-O 1.20, and before; the messages are the same.
const VERSIONS: [&str; 2] = ["runtime.v1", "runtime.v1alpha2"];

/// Queries by CRI.
pub(super) async fn query(server: Server<'_>, found: &Found) -> Answer {
    let question = ById {
        id: found.id.clone(),
    };
    for version in VERSIONS {
        let service = format!("{version}.RuntimeService");
        let answer: Result<ContainerStatusResponse, CallError> =
            call(server, &service, "ContainerStatus", None, &question).await;
        return match answer {
            Ok(answer) => from_container(answer, found),
            Err(CallError::Unimplemented) => continue,
            Err(CallError::Failed(fail)) => Err(fail),
            // The pod's own container, which holds its network, is none for CRI.
            Err(CallError::NotFound) => {
                let method = "PodSandboxStatus";
                match call(server, &service, method, None, &question).await {
                    Ok(answer) => from_sandbox(answer, found),
                    Err(CallError::Failed(fail)) => Err(fail),
                    Err(_) => Err(Fail::Unknown),
                }
            }
        };
    }
    Err(Fail::Unknown)
}

/// Queries containerd about a container in one of its namespaces that is not Kubernetes'.
pub(super) async fn ask_containerd(server: Server<'_>, found: &Found) -> Answer {
    let question = ById {
        id: found.id.clone(),
    };
    let namespace = found.namespace.as_deref().unwrap_or("default");
    let service = "containerd.services.containers.v1.Containers";
    let answer: Result<GetContainerResponse, CallError> =
        call(server, service, "Get", Some(namespace), &question).await;
    let container = match answer {
        Ok(answer) => answer.container.ok_or(Fail::Rubbish)?,
        Err(CallError::Failed(fail)) => return Err(fail),
        Err(_) => return Err(Fail::Unknown),
    };
    if container.id != found.id {
        return Err(Fail::Rubbish);
    }
    let mut names = Names::from_labels(&container.labels);
    let name = container.labels.get("nerdctl/name");
    names.name = names.name.or_else(|| text(name?));
    names.image = text(&container.image);
    Ok(names)
}

fn from_container(answer: ContainerStatusResponse, found: &Found) -> Answer {
    let status = answer.status.ok_or(Fail::Rubbish)?;
    if status.id != found.id {
        return Err(Fail::Rubbish);
    }
    let mut names = Names::from_labels(&status.labels);
    names.name = names.name.or_else(|| text(&status.metadata?.name));
    names.image = status.image.and_then(|image| text(&image.image));
    Ok(names)
}

fn from_sandbox(answer: PodSandboxStatusResponse, found: &Found) -> Answer {
    let status = answer.status.ok_or(Fail::Rubbish)?;
    if status.id != found.id {
        return Err(Fail::Rubbish);
    }
    let pod = status.metadata.unwrap_or_default();
    Ok(Names {
        name: text("pod"),
        pod_name: text(&pod.name),
        pod_namespace: text(&pod.namespace),
        pod_uid: text(&pod.uid),
        ..Names::default()
    })
}

impl Names {
    /// From labels; names are in those that the kubelet puts on containers.
    pub(super) fn from_labels(labels: &HashMap<String, String>) -> Self {
        let safe = |(name, value): (&String, &String)| {
            (shown(name.as_bytes(), NAME), shown(value.as_bytes(), LABEL))
        };
        let mut kept: Vec<(String, String)> = labels.iter().map(safe).collect();
        kept.sort();
        kept.truncate(LABELS);
        let label = |name: &str| labels.get(name).and_then(|value| text(value));
        Self {
            name: label("io.kubernetes.container.name"),
            pod_name: label("io.kubernetes.pod.name"),
            pod_namespace: label("io.kubernetes.pod.namespace"),
            pod_uid: label("io.kubernetes.pod.uid"),
            labels: kept,
            ..Self::default()
        }
    }
}

/// A name from a runtime, made safe; none when it is empty.
pub(super) fn text(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| shown(name.as_bytes(), NAME))
}

enum CallError {
    NotFound,
    Unimplemented,
    Failed(Fail),
}

/// One unary call.
async fn call<Answer: Message + Default>(
    server: Server<'_>,
    service: &str,
    method: &str,
    namespace: Option<&str>,
    question: &impl Message,
) -> Result<Answer, CallError> {
    let message = question.encode_to_vec();
    let mut framed = vec![0];
    // Our questions are short: the length fits.
    framed.extend_from_slice(
        &u32::try_from(message.len())
            .unwrap_or_default()
            .to_be_bytes(),
    );
    framed.extend_from_slice(&message);
    let mut request = Request::post(format!("http://localhost/{service}/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(namespace) = namespace {
        request = request.header("containerd-namespace", namespace);
    }
    let request = request
        .body(Full::new(Bytes::from(framed)))
        .map_err(|_| CallError::Failed(Fail::Unknown))?;
    let response = server.post(request).await.map_err(CallError::Failed)?;
    answer_of(response)
}

fn answer_of<Answer: Message + Default>(
    response: hyper::Response<http_body_util::Collected<Bytes>>,
) -> Result<Answer, CallError> {
    let rubbish = CallError::Failed(Fail::Rubbish);
    if response.status() != StatusCode::OK {
        return Err(rubbish);
    }
    // An answer without a message has its status in the headers.
    let status = response
        .body()
        .trailers()
        .and_then(|trailers| trailers.get("grpc-status"))
        .or_else(|| response.headers().get("grpc-status"))
        .and_then(|status| status.to_str().ok());
    match status {
        Some("0") => {}
        Some(NOT_FOUND) => return Err(CallError::NotFound),
        Some(UNIMPLEMENTED) => return Err(CallError::Unimplemented),
        // CRI-O before 1.24 answers UNKNOWN for what it does not know.
        Some(_) => return Err(CallError::NotFound),
        None => return Err(rubbish),
    }
    let body = response.into_body().to_bytes();
    let message = match body.split_at_checked(5) {
        Some((&[0, a, b, c, d], message))
            if usize::try_from(u32::from_be_bytes([a, b, c, d])) == Ok(message.len()) =>
        {
            message
        }
        _ => return Err(rubbish),
    };
    Answer::decode(message).map_err(|_| rubbish)
}
