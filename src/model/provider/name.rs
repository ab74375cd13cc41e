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
    /// The provider's own for models whose names begin so, chat completions for all others.
    GenaiFor(&'static str, AdapterKind),
}

/// A part of an address that differs from account to account.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// What stands for it in the address.
    mark: &'static str,
    /// The variables that hold it, the usual one first.
    variables: &'static [&'static str],
}

/// What is known of a provider.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Provider {
    pub(super) name: &'static str,
    pub(super) protocol: Protocol,
    /// The variables that usually hold its key, the usual one first; none if it needs no key.
    pub(super) keys: &'static [&'static str],
    /// Where it is, with a slash at the end.
    base_url: &'static str,
    /// What of the address the environment says.
    places: &'static [Place],
}

const fn chat(name: &'static str, keys: &'static [&'static str], base_url: &'static str) -> Provider {
    Provider { name, protocol: Protocol::ChatCompletions, keys, base_url, places: &[] }
}

const fn genai(
    name: &'static str,
    kind: AdapterKind,
    keys: &'static [&'static str],
    base_url: &'static str,
) -> Provider {
    Provider { name, protocol: Protocol::Genai(kind), keys, base_url, places: &[] }
}

const REGION: Place = Place { mark: "{region}", variables: &["AWS_REGION", "AWS_DEFAULT_REGION"] };
const PROJECT: Place = Place { mark: "{project}", variables: &["VERTEX_PROJECT_ID"] };
const LOCATION: Place = Place { mark: "{location}", variables: &["VERTEX_LOCATION"] };

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
    chat("api_route", &["API_ROUTE_API_KEY"], "https://global.api-route.com/v1/"),
    chat("heabsy", &["HEABSY_API_KEY"], "https://api.heabsy.com/v1/"),
    chat("runcrate", &["RUNCRATE_API_KEY"], "https://api.runcrate.ai/v1/"),
    chat("cloudgpu", &["CLOUDGPU_API_KEY"], "https://cloudgpu.app/v1/"),
    // A server on one's own machine, which may want a key.
    chat("omlx", &["OMLX_API_KEY"], "http://127.0.0.1:8000/v1/"),
    Provider {
        name: "opencode_go",
        protocol: Protocol::GenaiFor("minimax-", AdapterKind::OpenCodeGo),
        keys: &["OPENCODE_GO_API_KEY"],
        base_url: "https://opencode.ai/zen/go/v1/",
        places: &[],
    },
    genai("gemini_ix", AdapterKind::GeminiIx, &["GEMINI_API_KEY", "GOOGLE_API_KEY"], "https://generativelanguage.googleapis.com/v1beta/"),
    // Its key is an access token, as `gcloud auth print-access-token` prints it. The location may be `global`.
    Provider {
        name: "vertex",
        protocol: Protocol::Genai(AdapterKind::Vertex),
        keys: &["VERTEX_API_KEY"],
        base_url: "https://{location}-aiplatform.googleapis.com/v1/projects/{project}/locations/{location}/",
        places: &[PROJECT, LOCATION],
    },
    // With a key of its own; the other one takes the credentials that the kit of AWS finds, and would bring that kit.
    Provider {
        name: "bedrock_api",
        protocol: Protocol::Genai(AdapterKind::BedrockApi),
        keys: &["BEDROCK_API_KEY", "AWS_BEARER_TOKEN_BEDROCK"],
        base_url: "https://bedrock-runtime.{region}.amazonaws.com/",
        places: &[REGION],
    },
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

    /// The adapter of genai that speaks to the model; none for chat completions, which are spoken here.
    pub(super) fn adapter(&self) -> Option<AdapterKind> {
        match self.provider.protocol {
            Protocol::ChatCompletions => None,
            Protocol::Genai(kind) => Some(kind),
            Protocol::GenaiFor(prefix, kind) => {
                self.model.to_ascii_lowercase().starts_with(prefix).then_some(kind)
            }
        }
    }
}

impl Provider {
    /// Where it is, by what `variables` say of it.
    pub(super) fn address(&self, variables: impl Fn(&str) -> Option<String>) -> Result<String, Error> {
        let mut address = self.base_url.to_owned();
        for Place { mark, variables: names } in self.places {
            let refuse =
                |reason: String| Error::new(ErrorKind::BaseUrl { url: self.base_url.to_owned(), reason });
            let found = names.iter().find_map(|name| {
                variables(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
            });
            let Some(place) = found else {
                return Err(refuse(format!("set {} for {mark}", names.join(" or "))));
            };
            // It becomes a part of the host that is sent the key.
            if !place.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-') {
                let name = names.join(" or ");
                return Err(refuse(format!("{name} is {place:?}; it may have letters, digits and '-'")));
            }
            address = address.replace(mark, &place);
        }
        // Of Google's, this one place is no part of the host.
        Ok(address.replace("https://global-aiplatform", "https://aiplatform"))
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
        if provider.name == "vertex" && !["gemini", "claude"].iter().any(|kind| model.starts_with(kind)) {
            return Err(unknown(
                text,
                "write vertex:gemini-… or vertex:claude-…: others are not spoken to".into(),
            ));
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
        let vertex = "vertex:llama".parse::<ProviderName>().unwrap_err().to_string();
        assert!(vertex.contains("vertex:gemini-…"), "{vertex}");
    }

    #[test]
    fn every_address_ends_with_a_slash() {
        for provider in PROVIDERS {
            assert!(provider.base_url.ends_with('/'), "{}", provider.name);
        }
    }

    #[test]
    fn what_of_an_address_the_environment_says_is_asked_for_and_checked() {
        let address = |name: &str, set: &[(&str, &str)]| {
            let name: ProviderName = format!("{name}:gemini-m").parse().unwrap();
            let said = name.entry().address(|variable| {
                set.iter().find(|(name, _)| *name == variable).map(|(_, text)| (*text).to_owned())
            });
            said.unwrap_or_else(|error| error.to_string())
        };
        assert_eq!(
            address("bedrock_api", &[("AWS_DEFAULT_REGION", "eu-west-1")]),
            "https://bedrock-runtime.eu-west-1.amazonaws.com/"
        );
        let here = [("VERTEX_PROJECT_ID", "p-1"), ("VERTEX_LOCATION", "europe-west4")];
        assert_eq!(
            address("vertex", &here),
            "https://europe-west4-aiplatform.googleapis.com/v1/projects/p-1/locations/europe-west4/"
        );
        let everywhere = [("VERTEX_PROJECT_ID", "p-1"), ("VERTEX_LOCATION", "global")];
        assert_eq!(
            address("vertex", &everywhere),
            "https://aiplatform.googleapis.com/v1/projects/p-1/locations/global/"
        );
        let missing = address("bedrock_api", &[("AWS_REGION", " ")]);
        assert!(missing.contains("set AWS_REGION or AWS_DEFAULT_REGION"), "{missing}");
        let elsewhere = address("bedrock_api", &[("AWS_REGION", "x.example.com/")]);
        assert!(elsewhere.contains("AWS_REGION") && elsewhere.contains("may have letters"), "{elsewhere}");
    }

    /// The adapters of genai that have no row: what each is reached by instead.
    #[test]
    fn every_adapter_that_genai_brings_can_be_named() {
        for kind in AdapterKind::all() {
            let name = match kind.as_lower_str() {
                "open_router" => "openrouter",
                name => name,
            };
            assert!(ProviderName::providers().any(|known| known == name), "{name} has no row");
        }
    }
}
