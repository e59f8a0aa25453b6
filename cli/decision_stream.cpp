#include "cli/decision_stream.hpp"

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

#include <boost/json.hpp>

#include "cli/ssh/byte_forward.hpp"
#include "openshell.pb.h"
#include "policy/decision_service.hpp"

namespace openshell::cli {
namespace {

namespace json = boost::json;

// Splits at line ends; an empty line is no line.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    auto line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) out.push_back(std::move(line));
    at = end + 1;
  }
  return out;
}

/// The dropped count of the line that ends a stream; nullopt: it is another line.
std::optional<std::uint64_t> end_of(const std::string& line) {
  if (line.find("\"end\"") == std::string::npos) return std::nullopt;
  json::error_code error;
  const auto parsed = json::parse({line.data(), line.size()}, error);
  const auto* object = error ? nullptr : parsed.if_object();
  const auto* end = object == nullptr ? nullptr : object->if_contains("end");
  if (end == nullptr || !end->is_bool() || !end->get_bool()) return std::nullopt;
  const auto* dropped = object->if_contains("dropped");
  const auto number = dropped == nullptr ? 0 : dropped->is_int64() ? dropped->get_int64() : 0;
  return static_cast<std::uint64_t>(std::max<std::int64_t>(number, 0));
}

absl::StatusOr<Decisions> decisions_of(std::vector<std::string> lines, const std::string& name, const DecisionFilter& filter) {
  Decisions out;
  if (!lines.empty()) {
    if (const auto dropped = end_of(lines.back())) {
      out.dropped = *dropped;
      lines.pop_back();
    }
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    auto record = policy::parse_record(lines[i], absl::StrCat(name, ":", i + 1));
    if (!record.ok()) return record.status();
    if (filter.since && record->time < *filter.since) continue;
    out.records.push_back(*std::move(record));
    out.lines.push_back(std::move(lines[i]));
  }
  if (const auto have = out.records.size(); have > filter.limit) {
    const auto surplus = static_cast<std::ptrdiff_t>(have - filter.limit);
    out.records.erase(out.records.begin(), out.records.begin() + surplus);
    out.lines.erase(out.lines.begin(), out.lines.begin() + surplus);
  }
  return out;
}

}  // namespace

absl::StatusOr<Decisions> read_decisions(const std::string& text, const std::string& name, const DecisionFilter& filter) {
  auto lines = lines_of(text);
  if (lines.empty()) return absl::InvalidArgumentError(absl::StrCat(name, " holds no decision"));
  return decisions_of(std::move(lines), name, filter);
}

absl::StatusOr<Decisions> fetch_decisions(Context& context, const std::string& sandbox, const DecisionFilter& filter) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  v1::TcpForwardInit init;
  init.set_sandbox(sandbox);
  init.set_workspace(context.flags().workspace);
  init.set_service_id(policy::kDecisionService);
  init.mutable_ssh();
  const std::shared_ptr<ByteForward> forward = (*client)->open_forward(init);
  json::object request{{"limit", filter.limit}};
  if (filter.since) request["since"] = policy::show_record_time(*filter.since);
  // What keeps it from being written is told by the reading.
  if (forward->write(json::serialize(request) + "\n")) forward->end_output();
  std::string text;
  while (true) {
    auto bytes = forward->read();
    if (!bytes.ok()) return bytes.status();
    if (!*bytes || (*bytes)->empty()) break;
    text += **bytes;
    if (text.size() > kMaxDecisionBytes) {
      forward->cancel();
      return absl::DataLossError(
          absl::StrCat("the supervisor of '", sandbox, "' sends more than ", kMaxDecisionBytes, " bytes of records"));
    }
  }
  forward->cancel();
  auto lines = lines_of(text);
  if (lines.empty() || !text.ends_with('\n') || !end_of(lines.back())) {
    return absl::DataLossError(
        absl::StrCat("the records of sandbox '", sandbox, "' ended before their last line: nothing was judged; run the command again"));
  }
  return decisions_of(std::move(lines), absl::StrCat("@", sandbox), filter);
}

absl::StatusOr<std::chrono::system_clock::time_point> parse_since(const std::string& word, std::chrono::system_clock::time_point now) {
  absl::Duration back;
  const auto days = word.ends_with('d') ? word.substr(0, word.size() - 1) : std::string{};
  if (!days.empty() && days.size() < 6 && days.find_first_not_of("0123456789") == std::string::npos) {
    back = absl::Hours(24 * std::stol(days));
  } else if (!absl::ParseDuration(word, &back)) {
    auto time = policy::parse_record_time(word);
    if (time.ok()) return *time;
    return absl::InvalidArgumentError(
        absl::StrCat("--since expects a time such as 2026-01-02T03:04:05Z or a duration such as 15m, got '", word, "'"));
  }
  if (back < absl::ZeroDuration()) return absl::InvalidArgumentError(absl::StrCat("--since looks back: '", word, "' is negative"));
  return now - absl::ToChronoMicroseconds(back);
}

}  // namespace openshell::cli
