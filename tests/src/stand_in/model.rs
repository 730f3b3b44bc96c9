//! Two model APIs that know one trick: the first answer of a conversation calls a tool, the one
//! after the tool's result is the sentence [`DONE`].
//!
//! Anthropic's messages (`POST /v1/messages`), OpenAI's chat completions and responses; streamed when
//! the request says so, an event at a time.

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use hyper::body::{Frame, Incoming};
use serde_json::{Value, json};

use super::server::{self, Body};

/// What the model says once a tool was used.
pub const DONE: &str = "The tool has been used and all is well.";
/// The command that the model wants run.
const COMMAND: &str = "echo used > tool-was-used";

/// What programs call the tool that runs a command.
const COMMANDERS: [&str; 4] = ["bash", "shell", "shell_command", "exec_command"];

/// Answers one request; 401 unless it carries `key`, as `x-api-key` or as a bearer token.
pub async fn answer(key: String, request: Request<Incoming>) -> Response<Body> {
    let field = |name: &str| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    if field("x-api-key") != key && field("authorization") != format!("Bearer {key}") {
        let error = json!({"type": "authentication_error", "message": "invalid key"});
        let error = json!({"type": "error", "error": error});
        return server::json(StatusCode::UNAUTHORIZED, &error);
    }
    let path = request.uri().path().to_owned();
    let body = server::collect(request.into_body()).await;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    if path.ends_with("/count_tokens") {
        server::json(StatusCode::OK, &json!({"input_tokens": 5}))
    } else if path.ends_with("/v1/messages") {
        messages(&body)
    } else if path.ends_with("/chat/completions") {
        completions(&body)
    } else if path.ends_with("/responses") {
        responses(&body)
    } else {
        server::json(StatusCode::NOT_FOUND, &json!({"error": {"message": path}}))
    }
}

/// The tool to call: the first of the request's that runs commands, unless a result is there.
fn tool(body: &Value, results: &[&str]) -> Option<String> {
    let used = body.to_string();
    if results.iter().any(|mark| used.contains(mark)) {
        return None;
    }
    let names = body["tools"].as_array()?.iter().filter_map(|tool| {
        tool["name"]
            .as_str()
            .or_else(|| tool["function"]["name"].as_str())
    });
    names
        .filter(|name| COMMANDERS.contains(&name.to_ascii_lowercase().as_str()))
        .map(str::to_owned)
        .next()
}

/// What that tool is given.
fn input(tool: &str) -> String {
    let input = match tool {
        "exec_command" => json!({"cmd": COMMAND}),
        "shell" => json!({"command": ["sh", "-c", COMMAND]}),
        _ => json!({"command": COMMAND, "description": "Use a tool"}),
    };
    input.to_string()
}

fn messages(body: &Value) -> Response<Body> {
    let tool = tool(body, &["\"tool_result\""]);
    let (block, delta, reason) = match &tool {
        Some(name) => (
            json!({"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}),
            json!({"type": "input_json_delta", "partial_json": input(name)}),
            "tool_use",
        ),
        None => (
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": DONE}),
            "end_turn",
        ),
    };
    let mut message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 5, "output_tokens": 1},
    });
    if body["stream"] != json!(true) {
        message["content"] = match &tool {
            Some(name) => json!([{
                "type": "tool_use", "id": "toolu_1", "name": name,
                "input": {"command": COMMAND, "description": "Use a tool"},
            }]),
            None => json!([{"type": "text", "text": DONE}]),
        };
        message["stop_reason"] = json!(reason);
        return server::json(StatusCode::OK, &message);
    }
    let events = [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({
            "type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
            "usage": {"output_tokens": 4},
        }),
        json!({"type": "message_stop"}),
    ];
    events_of(&events, true, None)
}

fn completions(body: &Value) -> Response<Body> {
    let (delta, reason) = match tool(body, &["\"role\":\"tool\""]) {
        Some(name) => {
            let call = json!({
                "index": 0, "id": "call_1", "type": "function",
                "function": {"name": name, "arguments": input(&name)},
            });
            (
                json!({"role": "assistant", "tool_calls": [call]}),
                "tool_calls",
            )
        }
        None => (json!({"role": "assistant", "content": DONE}), "stop"),
    };
    let chunk = |choice: Value, usage: Value| {
        json!({
            "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": body["model"],
            "choices": [choice], "usage": usage,
        })
    };
    let usage = json!({"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9});
    if body["stream"] != json!(true) {
        let mut whole = chunk(
            json!({"index": 0, "message": delta, "finish_reason": reason}),
            usage,
        );
        whole["object"] = json!("chat.completion");
        return server::json(StatusCode::OK, &whole);
    }
    let events = [
        chunk(
            json!({"index": 0, "delta": delta, "finish_reason": null}),
            Value::Null,
        ),
        chunk(
            json!({"index": 0, "delta": {}, "finish_reason": reason}),
            usage,
        ),
    ];
    events_of(&events, false, Some("[DONE]"))
}

fn responses(body: &Value) -> Response<Body> {
    let item = match tool(body, &["function_call_output"]) {
        Some(name) => json!({
            "id": "i1", "type": "function_call", "call_id": "call_1", "name": name,
            "arguments": input(&name), "status": "completed",
        }),
        None => json!({
            "id": "i1", "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": DONE, "annotations": []}],
        }),
    };
    let whole = json!({
        "id": "r1", "object": "response", "status": "completed", "model": body["model"],
        "output": [item],
        "usage": {
            "input_tokens": 5, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 4,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 9,
        },
    });
    if body["stream"] != json!(true) {
        return server::json(StatusCode::OK, &whole);
    }
    let events = [
        json!({"type": "response.created", "response": {"id": "r1", "status": "in_progress", "output": []}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": whole}),
    ];
    events_of(&events, true, None)
}

/// Server-sent events, each a frame of its own.
fn events_of(events: &[Value], named: bool, last: Option<&'static str>) -> Response<Body> {
    let mut frames: Vec<String> = events
        .iter()
        .map(|event| match event["type"].as_str().filter(|_| named) {
            Some(kind) => format!("event: {kind}\ndata: {event}\n\n"),
            None => format!("data: {event}\n\n"),
        })
        .collect();
    frames.extend(last.map(|text| format!("data: {text}\n\n")));
    let (sender, body) = server::channel();
    tokio::spawn(async move {
        for frame in frames {
            if sender
                .send(Ok(Frame::data(Bytes::from(frame))))
                .await
                .is_err()
            {
                return;
            }
        }
    });
    let mut response = Response::new(body);
    let kind = header::HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
