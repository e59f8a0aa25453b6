#include "policy/boundary/report.hpp"

#include <array>
#include <charconv>
#include <map>

#include "policy/document.hpp"
#include "policy/text.hpp"

namespace openshell::policy::boundary {
namespace {

using text::cat;

constexpr std::array<std::string_view, 5> kDomains{"filesystem", "network_l4", "network_rest", "process", "landlock"};
constexpr std::chrono::milliseconds kMaxTimeout = std::chrono::hours{24};

absl::Status wrong(std::string_view what) { return absl::InvalidArgumentError(cat(what, "; usage: ", usage())); }

// The value of `--name VALUE` or `--name=VALUE`. False: the word is another one.
bool takes(std::string_view word, std::string_view name, std::span<const std::string_view> words, std::size_t& at, std::string_view& value,
           absl::Status& status) {
  if (word == name) {
    if (at + 1 >= words.size()) {
      status = wrong(cat(name, " needs a value"));
    } else {
      value = words[++at];
    }
    return true;
  }
  if (!word.starts_with(name) || word.size() <= name.size() || word[name.size()] != '=' || !name.starts_with("--")) return false;
  value = word.substr(name.size() + 1);
  return true;
}

Document text_or_null(const std::string& value) { return value.empty() ? Document::bare("null") : Document::string(value); }

bool is_network(const Counterexample& c) {
  return c.domain == Counterexample::Domain::network_l4 || c.domain == Counterexample::Domain::network_rest;
}

Document to_document(const Counterexample& c) {
  Document out = Document::mapping();
  out.set("domain", Document::string(std::string{to_string(c.domain)}));
  if (is_network(c)) {
    const bool rest = c.domain == Counterexample::Domain::network_rest;
    out.set("binary", text_or_null(c.binary));
    out.set("ancestor", text_or_null(c.ancestor));
    out.set("identity_enforced", Document::boolean(c.identity_enforced));
    out.set("host", Document::string(c.host));
    out.set("port", Document::bare(std::to_string(c.port)));
    out.set("protocol", Document::string(rest ? "rest" : "tcp"));
    out.set("method", text_or_null(c.method));
    out.set("path", text_or_null(rest ? c.path : std::string{}));
    if (!c.query.empty()) {
      auto& query = out.set("query_params", Document::mapping());
      for (const auto& [name, value] : c.query) query.set(name, Document::list()).push(Document::string(value));
    }
  } else if (c.domain == Counterexample::Domain::filesystem) {
    out.set("access", Document::string(c.access));
    out.set("path", Document::string(c.path));
  } else {
    out.set("candidate", Document::string(c.candidate_value));
    out.set("boundary", Document::string(c.boundary_value));
  }
  return out;
}

std::string to_text(const Counterexample& c) {
  switch (c.domain) {
    case Counterexample::Domain::filesystem:
      return cat("filesystem ", c.access, " ", c.path);
    case Counterexample::Domain::process:
    case Counterexample::Domain::landlock:
      return cat(to_string(c.domain), " ", c.candidate_value, ", beyond ", c.boundary_value);
    default:
      break;
  }
  std::string out{to_string(c.domain)};
  if (!c.method.empty()) out += cat(" ", c.method);
  out += cat(" ", c.host, ":", c.port, c.path);
  const char* separator = "?";
  for (const auto& [name, value] : c.query) {
    out += cat(separator, name, "=", value);
    separator = "&";
  }
  if (!c.identity_enforced) return out + " by any program (identity not enforced)";
  out += cat(" by ", c.binary);
  return c.ancestor.empty() ? out : out + cat(" below ", c.ancestor);
}

std::string json_report(const CheckCommand& command, const Answer& answer, std::string_view version) {
  Document out = Document::mapping();
  out.set("schema_version", Document::bare(std::to_string(kReportSchemaVersion)));
  out.set("prover_version", Document::string(std::string{version}));
  out.set("result", Document::string(std::string{to_string(answer.result)}));
  out.set("exit_code", Document::bare(std::to_string(exit_code(answer))));
  out.set("candidate", text_or_null(command.candidate));
  out.set("boundary", text_or_null(command.boundary));
  auto& domains = out.set("coverage", Document::mapping()).set("domains", Document::list());
  for (const auto domain : kDomains) domains.push(Document::string(std::string{domain}));
  out.set("counterexample", answer.counterexample ? to_document(*answer.counterexample) : Document::bare("null"));
  out.set("reason_code", text_or_null(std::string{to_string(answer.reason_code)}));
  out.set("reason", text_or_null(answer.reason));
  std::string text = write_json(out, true);
  if (!text.ends_with('\n')) text.push_back('\n');
  return text;
}

}  // namespace

std::string_view usage() { return "openshell-prover check CANDIDATE --boundary BOUNDARY [--output text|json] [--timeout 10s]"; }

absl::StatusOr<std::chrono::milliseconds> parse_timeout(std::string_view text) {
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view unit{end, static_cast<std::size_t>(text.data() + text.size() - end)};
  const std::map<std::string_view, std::int64_t> kUnits{{"ms", 1}, {"s", 1'000}, {"m", 60'000}};
  const auto found = kUnits.find(unit);
  if (error != std::errc{} || found == kUnits.end() || count <= 0 || count > kMaxTimeout.count() / found->second) {
    return absl::InvalidArgumentError(cat("--timeout '", text, "' is no positive whole number of ms, s or m, such as 10s"));
  }
  return std::chrono::milliseconds{count * found->second};
}

absl::Status parse_command(std::span<const std::string_view> words, CheckCommand& out) {
  absl::Status first;  // the rest is still read, for --output
  const auto note = [&](absl::Status status) {
    if (first.ok()) first = std::move(status);
  };
  bool named = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto word = words[i];
    absl::Status status;
    std::string_view value;
    if (word == "--help" || word == "-h") {
      out.help = true;
    } else if (takes(word, "--boundary", words, i, value, status) || takes(word, "--maximum", words, i, value, status)) {
      out.boundary = value;
    } else if (takes(word, "--output", words, i, value, status) || takes(word, "-o", words, i, value, status)) {
      if (value == "json" || value == "text") {
        out.json = value == "json";
      } else if (status.ok()) {
        status = wrong(cat("--output '", value, "' is neither text nor json"));
      }
    } else if (takes(word, "--timeout", words, i, value, status)) {
      auto timeout = status.ok() ? parse_timeout(value) : absl::StatusOr<std::chrono::milliseconds>{kDefaultTimeout};
      if (timeout.ok()) {
        out.timeout = *timeout;
      } else {
        status = timeout.status();
      }
    } else if (word.starts_with('-')) {
      status = wrong(cat("unknown option '", word, "'"));
    } else if (!named) {
      named = true;
      if (word != "check") status = wrong(cat("unknown command '", word, "'"));
    } else if (out.candidate.empty()) {
      out.candidate = word;
    } else {
      status = wrong(cat("unexpected word '", word, "'"));
    }
    note(std::move(status));
  }
  if (out.help) return absl::OkStatus();
  if (!named) note(wrong("no command is given"));
  if (out.candidate.empty()) note(wrong("no candidate policy is given"));
  if (out.boundary.empty()) note(wrong("--boundary is not given"));
  return first;
}

int exit_code(const Answer& answer) {
  switch (answer.result) {
    case Result::within_boundary:
      return 0;
    case Result::exceeds_boundary:
      return 1;
    case Result::error:
      return 2;
    default:
      return answer.reason_code == Reason::cancelled ? 130 : 3;
  }
}

std::string report(const CheckCommand& command, const Answer& answer, std::string_view version) {
  if (command.json) return json_report(command, answer, version);
  std::string out = cat("result: ", to_string(answer.result), "\ncoverage: domains=");
  for (std::size_t i = 0; i < kDomains.size(); ++i) out += cat(i == 0 ? "" : ",", kDomains[i]);
  out += "\n";
  if (answer.counterexample) out += cat("counterexample: ", to_text(*answer.counterexample), "\n");
  if (!answer.reason.empty()) out += cat("reason: ", answer.reason, "\n");
  return out;
}

}  // namespace openshell::policy::boundary
