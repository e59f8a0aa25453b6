#include "policy/decision_record.hpp"

#include <absl/time/time.h>

#include <algorithm>
#include <array>

#include "policy/parse.hpp"
#include "policy/question_document.hpp"
#include "policy/text.hpp"

namespace openshell::policy {
namespace {

using text::cat;

constexpr std::array<std::string_view, 5> kMembers{"time", "generation", "policy_hash", "input", "decision"};

class RecordReader : private ValueReader {
 public:
  RecordReader(SourceMap& places, Diagnostics& diagnostics) : ValueReader{places, diagnostics, {"invalid record: ", "record"}} {}

  void read(const YamlNode& root, DecisionRecord& out) {
    std::size_t seen = 0;
    each_key(root, "", kMembers, [&](std::string_view key, const YamlNode& node, const std::string& path) {
      ++seen;
      if (key == "input") {
        read_question(node, path, out.question, places_, diagnostics_);
      } else if (key == "generation") {
        std::int64_t value = 0;
        if (integer(node, path, 0, std::numeric_limits<std::int64_t>::max(), "generation", value))
          out.generation = static_cast<std::uint64_t>(value);
      } else if (std::string word; string(node, path, word)) {
        word_of(node, path, std::move(word), out);
      }
    });
    if (seen != kMembers.size() && root.kind == YamlNode::Kind::mapping)
      error(root.place, "", "invalid record: it has time, generation, policy_hash, input and decision, each of them");
  }

 private:
  void word_of(const YamlNode& node, const std::string& path, std::string word, DecisionRecord& out) {
    if (path == "policy_hash") {
      out.policy_hash = std::move(word);
    } else if (path == "decision") {
      const auto decision = parse_decision(word);
      if (!decision) error(node.place, path, "invalid record: decision is allow, deny or audit");
      out.decision = decision.value_or(Decision::deny);
    } else {
      const auto time = parse_record_time(word);
      if (!time.ok()) error(node.place, path, cat("invalid record: time: ", std::string{time.status().message()}));
      out.time = time.value_or(WallTime{});
    }
  }
};

/// The time of a record. Its whole seconds are written once a second: a busy sandbox decides thousands of times in one.
void append_time(std::string& out, WallTime time) {
  thread_local std::int64_t written = -1;
  thread_local std::string seconds;
  const auto since = time.time_since_epoch();
  const auto whole = std::chrono::floor<std::chrono::seconds>(since);
  if (whole.count() != written) {
    seconds = absl::FormatTime("%Y-%m-%dT%H:%M:%S.", absl::FromUnixSeconds(whole.count()), absl::UTCTimeZone());
    written = whole.count();
  }
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(since - whole).count();
  const auto digits = std::to_string(1'000 + milliseconds);
  out += seconds;
  out += std::string_view{digits}.substr(1);
  out += 'Z';
}

/// A name longer than this may exceed kMaxKeyBytes when it is escaped, six bytes for one at most.
constexpr std::size_t kMaxPlainNameBytes = 160;
/// yaml-cpp takes no key of more than 1,024 bytes, quotes and escapes counted.
constexpr std::size_t kMaxKeyBytes = 1'000;

bool readable_name(const QueryParameter& parameter) {
  if (parameter.first.size() <= kMaxPlainNameBytes) return true;
  std::string key;
  append_json_text(key, parameter.first);
  return key.size() <= kMaxKeyBytes;
}

bool has_nul(std::string_view text) { return text.find('\0') != std::string_view::npos; }

bool readable(const GraphqlContent& content) {
  return content.operations.size() <= kMaxQuestionItems &&
         std::all_of(content.operations.begin(), content.operations.end(), [](const GraphqlOperation& operation) {
           return operation.fields.size() <= kMaxQuestionItems && !has_nul(operation.name) && !has_nul(operation.persisted_hash) &&
                  !has_nul(operation.persisted_id);
         });
}

/// True where parse_record takes what is written of the request. A workload chooses these texts, and one record that is refused would end
/// every replay.
bool readable(const Request& request) {
  if (request.query.size() > kMaxQuestionItems || !std::all_of(request.query.begin(), request.query.end(), readable_name)) return false;
  if (request.graphql != nullptr && !readable(*request.graphql)) return false;
  return request.jsonrpc == nullptr || !request.jsonrpc->method || !has_nul(*request.jsonrpc->method);
}

}  // namespace

std::string show_record_time(WallTime time) {
  std::string out;
  append_time(out, time);
  return out;
}

absl::StatusOr<WallTime> parse_record_time(const std::string& text) {
  absl::Time time;
  std::string why;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &why))
    return absl::InvalidArgumentError(cat("'", shorten(text, 64), "' is no time as RFC 3339 writes it, such as 2026-01-02T03:04:05Z"));
  return absl::ToChronoTime(time);
}

std::string record_line(WallTime time, std::uint64_t generation, std::string_view policy_hash, const Destination& destination,
                        const Request* request, Decision decision) {
  if (request != nullptr && !readable(*request)) return {};
  std::string out;
  out.reserve(512);
  out += "{\"time\":\"";
  append_time(out, time);
  out += "\",\"generation\":";
  out += std::to_string(generation);
  out += ",\"policy_hash\":";
  append_json_text(out, policy_hash);
  out += ",\"input\":";
  append_json(out, destination, request, Values::hashed);
  out += ",\"decision\":\"";
  out += to_string(decision);
  out += "\"}";
  if (out.size() > kMaxRecordBytes) out.clear();
  return out;
}

absl::StatusOr<DecisionRecord> parse_record(std::string_view line, const std::string& where) {
  if (line.size() > kMaxRecordBytes) return absl::InvalidArgumentError(cat(where, ": a record has at most ", kMaxRecordBytes, " bytes"));
  Diagnostics diagnostics;
  SourceMap places;
  DecisionRecord out;
  const auto root = read_yaml(line, {}, diagnostics);
  if (root != nullptr) RecordReader{places, diagnostics}.read(*root, out);
  if (!diagnostics.has_errors()) return out;
  return absl::InvalidArgumentError(cat(where, ": ", diagnostics.messages().front()));
}

}  // namespace openshell::policy
