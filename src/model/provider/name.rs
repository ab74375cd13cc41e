//! `provider:model`, and what is known of each provider.

use std::fmt;
use std::str::FromStr;

use genai::adapter::AdapterKind;

use crate::error::{Error, ErrorKind};

/// A model of a provider, as it stands after `--model`: `anthropic:claude-sonnet-4-5`, `ollama:qwen3:8b`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderName {
    provider: &'static Provider,
    model: String,
}

/// How a provider is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// OpenAI's chat completions: read here, see `decoder.rs` for why.
    ChatCompletions,
    /// The provider's own, through genai.
    Genai(AdapterKind),
}

/// What is known of a provider.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Provider {
    pub(super) name: &'static str,
    pub(super) protocol: Protocol,
    /// The variables that usually hold its key, the usual one first; none if it needs no key.
    pub(super) keys: &'static [&'static str],
    /// Where it is, with a slash at the end.
    pub(super) base_url: &'static str,
}

const fn chat(name: &'static str, keys: &'static [&'static str], base_url: &'static str) -> Provider {
    Provider { name, protocol: Protocol::ChatCompletions, keys, base_url }
}

const fn genai(
    name: &'static str,
    kind: AdapterKind,
    keys: &'static [&'static str],
    base_url: &'static str,
) -> Provider {
    Provider { name, protocol: Protocol::Genai(kind), keys, base_url }
}

/// The providers, in the order in which they are listed. Addresses and variables are those of the providers' documentation.
#[rustfmt::skip]
static PROVIDERS: &[Provider] = &[
    chat("openai", &["OPENAI_API_KEY"], "https://api.openai.com/v1/"),
    genai("anthropic", AdapterKind::Anthropic, &["ANTHROPIC_API_KEY"], "https://api.anthropic.com/v1/"),
    genai("gemini", AdapterKind::Gemini, &["GEMINI_API_KEY", "GOOGLE_API_KEY"], "https://generativelanguage.googleapis.com/v1beta/"),
    genai("ollama", AdapterKind::Ollama, &[], "http://localhost:11434/"),
    chat("openrouter", &["OPENROUTER_API_KEY", "OPEN_ROUTER_API_KEY"], "https://openrouter.ai/api/v1/"),
    genai("openai_resp", AdapterKind::OpenAIResp, &["OPENAI_API_KEY"], "https://api.openai.com/v1/"),
    genai("ollama_cloud", AdapterKind::OllamaCloud, &["OLLAMA_API_KEY"], "https://ollama.com/"),
    chat("groq", &["GROQ_API_KEY"], "https://api.groq.com/openai/v1/"),
    chat("mistral", &["MISTRAL_API_KEY"], "https://api.mistral.ai/v1/"),
    chat("deepseek", &["DEEPSEEK_API_KEY"], "https://api.deepseek.com/v1/"),
    chat("xai", &["XAI_API_KEY"], "https://api.x.ai/v1/"),
    chat("together", &["TOGETHER_API_KEY"], "https://api.together.xyz/v1/"),
    chat("fireworks", &["FIREWORKS_API_KEY"], "https://api.fireworks.ai/inference/v1/"),
    chat("kimi", &["KIMI_API_KEY", "MOONSHOT_API_KEY"], "https://api.moonshot.ai/v1/"),
    chat("moonshot", &["MOONSHOT_API_KEY"], "https://api.moonshot.cn/v1/"),
    chat("nebius", &["NEBIUS_API_KEY"], "https://api.studio.nebius.ai/v1/"),
    chat("zai", &["ZAI_API_KEY"], "https://api.z.ai/api/paas/v4/"),
    chat("aihubmix", &["AIHUBMIX_API_KEY"], "https://aihubmix.com/v1/"),
    chat("aliyun", &["ALIYUN_API_KEY"], "https://dashscope.aliyuncs.com/compatible-mode/v1/"),
    chat("qwen_cloud", &["QWEN_CLOUD_API_KEY"], "https://dashscope-intl.aliyuncs.com/compatible-mode/v1/"),
    chat("bigmodel", &["BIGMODEL_API_KEY"], "https://open.bigmodel.cn/api/paas/v4/"),
    chat("baidu", &["BAIDU_API_KEY"], "https://qianfan.baidubce.com/v2/"),
    chat("mimo", &["MIMO_API_KEY"], "https://api.mimo.com/openai/v1/"),
    chat("atlascloud", &["ATLASCLOUD_API_KEY"], "https://api.atlascloud.ai/v1/"),
    chat("requesty", &["REQUESTY_API_KEY"], "https://router.requesty.ai/v1/"),
    chat("github_copilot", &["GITHUB_TOKEN"], "https://models.github.ai/inference/"),
    genai("minimax", AdapterKind::MiniMax, &["MINIMAX_API_KEY"], "https://api.minimax.io/anthropic/v1/"),
    // Its own protocol, as genai speaks it, has no tools.
    chat("cohere", &["COHERE_API_KEY"], "https://api.cohere.ai/compatibility/v1/"),
];

impl ProviderName {
    /// The provider.
    #[must_use]
    pub fn provider(&self) -> &'static str {
        self.provider.name
    }

    /// The model, as the provider calls it.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The names of all providers.
    pub fn providers() -> impl Iterator<Item = &'static str> {
        PROVIDERS.iter().map(|provider| provider.name)
    }

    pub(super) fn entry(&self) -> &'static Provider {
        self.provider
    }
}

impl fmt::Display for ProviderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider.name, self.model)
    }
}

impl FromStr for ProviderName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = || Self::providers().collect::<Vec<_>>().join(", ");
        let Some((name, model)) = text.split_once(':') else {
            return Err(unknown(text, format!("write provider:model with one of: {}", known())));
        };
        let Some(provider) = PROVIDERS.iter().find(|provider| provider.name.eq_ignore_ascii_case(name))
        else {
            let reason = format!("there is no provider {name:?}; the providers are: {}", known());
            return Err(unknown(text, reason));
        };
        let model = model.trim();
        if model.is_empty() {
            return Err(unknown(text, format!("write {name}:MODEL")));
        }
        Ok(Self { provider, model: model.to_owned() })
    }
}

fn unknown(name: &str, reason: String) -> Error {
    Error::new(ErrorKind::Model { name: name.to_owned(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_provider_and_a_model_that_may_have_colons() {
        let name: ProviderName = "ollama:qwen3:8b".parse().unwrap();
        assert_eq!(
            (name.provider(), name.model(), name.to_string().as_str()),
            ("ollama", "qwen3:8b", "ollama:qwen3:8b")
        );
        assert_eq!("OpenAI:gpt-5".parse::<ProviderName>().unwrap().provider(), "openai");
    }

    #[test]
    fn an_unknown_provider_is_told_the_known_ones() {
        let error = "gorq:llama".parse::<ProviderName>().unwrap_err().to_string();
        assert!(error.contains("\"gorq\"") && error.contains("openai, anthropic, gemini, ollama"), "{error}");
        assert!("gpt-5".parse::<ProviderName>().unwrap_err().to_string().contains("provider:model"));
        assert!("openai: ".parse::<ProviderName>().unwrap_err().to_string().contains("openai:MODEL"));
    }

    #[test]
    fn every_address_ends_with_a_slash() {
        for provider in PROVIDERS {
            assert!(provider.base_url.ends_with('/'), "{}", provider.name);
        }
    }
}
