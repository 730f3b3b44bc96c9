use super::*;

/// Each is what a provider sends, in its own form, and what it took.
fn recorded() -> Vec<(&'static str, String, Usage, &'static str)> {
    let usage = |input, cached, cache_write, cache_write_hour, output| Usage {
        input,
        cached,
        cache_write,
        cache_write_hour,
        output,
    };
    let event = |name: &str, data: &str| format!("event: {name}\r\ndata: {data}\r\n\r\n");
    let line = |data: &str| format!("data: {data}\n\n");
    vec![
        (
            "anthropic, streamed",
            [
                event(
                    "message_start",
                    r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"usage":{"input_tokens":12,"cache_creation_input_tokens":300,"cache_read_input_tokens":4000,"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":200},"output_tokens":1,"service_tier":"standard"}}}"#,
                ),
                event("ping", r#"{"type": "ping"}"#),
                event(
                    "content_block_delta",
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"{\"usage\":{\"output_tokens\":9999}} \u00fc"}}"#,
                ),
                event(
                    "message_delta",
                    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":12,"cache_creation_input_tokens":300,"cache_read_input_tokens":4000,"output_tokens":55}}"#,
                ),
                event("message_stop", r#"{"type":"message_stop"}"#),
            ]
            .concat(),
            usage(12, 4000, 100, 200, 55),
            "claude-sonnet-4-5",
        ),
        (
            "anthropic, whole",
            r#"{"id":"msg_1","model":"claude-opus-4-5","content":[{"type":"tool_use","input":{"usage":{"output_tokens":77}}}],"usage":{"input_tokens":5,"output_tokens":4}}"#.to_owned(),
            usage(5, 0, 0, 0, 4),
            "claude-opus-4-5",
        ),
        (
            "openai chat, streamed",
            [
                line(r#"{"id":"c","object":"chat.completion.chunk","model":"gpt-5","choices":[{"index":0,"delta":{"content":"Hi"}}],"usage":null}"#),
                line(r#"{"id":"c","model":"gpt-5","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":30,"total_tokens":130,"prompt_tokens_details":{"cached_tokens":64,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":20}}}"#),
                line("[DONE]"),
            ]
            .concat(),
            usage(36, 64, 0, 0, 30),
            "gpt-5",
        ),
        (
            "openai responses, streamed",
            [
                event("response.created", r#"{"type":"response.created","response":{"id":"r","model":"gpt-5","usage":null}}"#),
                event("response.output_text.delta", r#"{"type":"response.output_text.delta","delta":"Hi"}"#),
                event("response.completed", r#"{"type":"response.completed","response":{"id":"r","model":"gpt-5","output":[{"content":[{"type":"output_text","text":"Hi"}]}],"usage":{"input_tokens":75,"input_tokens_details":{"cached_tokens":25,"cache_write_tokens":10},"output_tokens":40,"output_tokens_details":{"reasoning_tokens":30},"total_tokens":115}}}"#),
            ]
            .concat(),
            usage(40, 25, 10, 0, 40),
            "gpt-5",
        ),
        (
            "google, streamed as events",
            [
                line(r#"{"candidates":[{"content":{"parts":[{"text":"Hi"}]}}],"usageMetadata":{"promptTokenCount":50,"candidatesTokenCount":1,"totalTokenCount":51},"modelVersion":"gemini-2.5-pro"}"#),
                line(r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":50,"cachedContentTokenCount":20,"candidatesTokenCount":6,"thoughtsTokenCount":11,"toolUsePromptTokenCount":3,"totalTokenCount":70},"modelVersion":"gemini-2.5-pro"}"#),
            ]
            .concat(),
            usage(33, 20, 0, 0, 17),
            "gemini-2.5-pro",
        ),
        (
            "google, streamed as a list",
            "[{\n\"usageMetadata\": {\"promptTokenCount\": 7},\n\"modelVersion\": \"gemini-2.5-flash\"\n}\n,\r\n{\"candidates\": [{\"finishReason\": \"STOP\"}], \"usageMetadata\": {\"promptTokenCount\": 7, \"candidatesTokenCount\": 9}}\n]\n".to_owned(),
            usage(7, 0, 0, 0, 9),
            "gemini-2.5-flash",
        ),
        (
            "openrouter, streamed",
            [
                ": OPENROUTER PROCESSING\n\n".to_owned(),
                line(r#"{"model":"anthropic\/claude-sonnet-4.5","choices":[{"delta":{"content":"Hi","reasoning":"so"}}]}"#),
                line(r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,"cost":0.000123,"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":1}}}"#),
                line("[DONE]"),
            ]
            .concat(),
            usage(5, 4, 1, 0, 2),
            "anthropic/claude-sonnet-4.5",
        ),
        (
            "ollama, lines",
            "{\"model\":\"llama3.2\",\"message\":{\"role\":\"assistant\",\"content\":\"Hi\"},\"done\":false}\n{\"model\":\"llama3.2\",\"done\":true,\"prompt_eval_count\":26,\"eval_count\":298}\n".to_owned(),
            usage(26, 0, 0, 0, 298),
            "llama3.2",
        ),
        (
            "embeddings",
            r#"{"object":"list","data":[{"embedding":[0.1,-0.2]}],"model":"text-embedding-3-small","usage":{"prompt_tokens":8,"total_tokens":8}}"#.to_owned(),
            usage(8, 0, 0, 0, 0),
            "text-embedding-3-small",
        ),
    ]
}

fn read(pieces: &[&[u8]]) -> Reader {
    let mut reader = Reader::default();
    for piece in pieces {
        reader.push(piece);
    }
    reader.end();
    reader
}

#[test]
fn what_each_provider_says_is_counted_once_wherever_the_stream_is_cut() {
    for (name, text, wanted, model) in recorded() {
        let text = text.as_bytes();
        for at in 0..=text.len() {
            let reader = read(&[&text[..at], &text[at..]]);
            assert_eq!(reader.stated(), Some(wanted), "{name} at {at}");
            assert_eq!(reader.model(), Some(model), "{name} at {at}");
            assert!(reader.is_final(true), "{name} at {at}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(read(&bytes).stated(), Some(wanted), "{name} by bytes");
    }
}

/// What a stream says before it breaks off is not what it took in the end.
#[test]
fn a_stream_that_breaks_off_before_its_counts_is_not_final() {
    for (name, text, wanted, _) in recorded() {
        let mut was_final = false;
        for at in 0..text.len() {
            let mut reader = Reader::default();
            reader.push(&text.as_bytes()[..at]);
            let now = reader.is_final(false);
            assert!(now || !was_final, "{name} at {at}: it was final before");
            was_final = now;
            if now {
                assert_eq!(reader.stated(), Some(wanted), "{name} at {at}");
            }
        }
        let mut whole = Reader::default();
        whole.push(text.as_bytes());
        assert!(whole.is_final(false), "control: {name}");
    }
}

#[test]
fn without_counts_what_was_written_is_a_guess() {
    let event = |text: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let reader = read(&[
        event(&"word ".repeat(8)).as_bytes(),
        event("tail").as_bytes(),
    ]);
    assert_eq!(reader.stated(), None);
    assert!(!reader.is_final(true));
    assert_eq!(reader.guess().output, 11);
    assert_eq!(read(&[b""]).guess(), Usage::default(), "control");
}

#[test]
fn what_openrouter_says_that_it_cost_is_kept() {
    let said = |name: &str| {
        let all = recorded();
        let text = all.iter().find(|it| it.0 == name).unwrap().1.clone();
        read(&[text.as_bytes()]).cost().map(str::to_owned)
    };
    assert_eq!(said("openrouter, streamed").as_deref(), Some("0.000123"));
    assert_eq!(said("openai chat, streamed"), None, "control");
}

/// However long an answer is, and however deep, what is kept of it is not.
#[test]
fn what_is_kept_is_bounded() {
    let mut reader = Reader::default();
    reader.push(b"{\"model\":\"m\",\"data\":\"");
    let long = vec![b'x'; 1 << 20];
    for _ in 0..4 {
        reader.push(&long);
    }
    reader.push(b"\",\"deep\":");
    reader.push(&b"[".repeat(1 << 20));
    reader.push(&b"]".repeat(1 << 20));
    reader.push(b",\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}");
    reader.end();
    let usage = reader.stated().unwrap();
    assert_eq!((usage.input, usage.output), (3, 4));
    let held = format!("{reader:?}");
    assert!(held.len() < 4096, "{} bytes are held", held.len());
}
