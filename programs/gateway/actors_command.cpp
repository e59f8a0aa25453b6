#include "programs/gateway/actors_command.hpp"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/json/parse.hpp>
#include <cstdio>
#include <map>
#include <vector>

#include "observability/text.hpp"

namespace openshell::gateway {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace json = boost::json;
using boost::system::error_code;
using local = asio::local::stream_protocol;

constexpr std::size_t kMaxAnswer = 16U << 20U;
constexpr std::uint64_t kLongWaitMs = 30'000;
constexpr std::uint64_t kRecentMs = 60'000;

absl::Status unreachable(const std::string& socket, const error_code& error) {
  return absl::UnavailableError(cat("the gateway's operator socket ", socket, " can not be reached: ", error.message(),
                                    "; is the gateway running, and by this user? --socket PATH names another"));
}

absl::Status connect(local::socket& to, const std::string& path) {
  error_code error;
  to.connect(local::endpoint{path}, error);
  return error ? unreachable(path, error) : absl::OkStatus();
}

std::string text_of(const json::object& object, std::string_view key) {
  const auto* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string{value->as_string()} : std::string{};
}

std::uint64_t number_of(const json::object& object, std::string_view key) {
  const auto* value = object.if_contains(key);
  error_code error;
  return value == nullptr ? 0 : value->to_number<std::uint64_t>(error);
}

/// "!" what needs somebody, "?" what may, "." what does its work.
char trouble(const json::object& actor) {
  if (number_of(actor, "oldest_ms") >= kLongWaitMs && number_of(actor, "waiting") + number_of(actor, "mailbox") > 0 &&
      text_of(actor, "kind") != "exec_registry")
    return '!';
  const auto* failed = actor.if_contains("failed_ms");
  if (failed != nullptr && number_of(actor, "failed_ms") < kRecentMs) return '?';
  return '.';
}

class Tree {
 public:
  explicit Tree(const json::array& actors) {
    for (const auto& value : actors) {
      if (const auto* object = value.if_object()) by_id_[text_of(*object, "id")] = object;
    }
    for (const auto& [id, actor] : by_id_) {
      const auto parent = text_of(*actor, "parent");
      children_[by_id_.contains(parent) && parent != id ? parent : std::string{}].push_back(id);
    }
  }

  std::string text() const {
    std::string out;
    print({}, 0, out);
    return out;
  }

 private:
  void print(const std::string& of, int depth, std::string& out) const {
    constexpr int kDeepest = 8;  // parents that form a ring, as only a sandbox would say, end here
    const auto found = children_.find(of);
    if (found == children_.end() || depth > kDeepest) return;
    for (const auto& id : found->second) {
      const auto& actor = *by_id_.at(id);
      char head[128];
      std::snprintf(head, sizeof head, "  %c %*s%-*s", trouble(actor), depth * 2, "", std::max(1, 44 - depth * 2),
                    id.substr(0, 60).c_str());
      char counts[96];
      std::snprintf(
          counts, sizeof counts, " %6llu %7llu %7llu %6llu %3llu  ", static_cast<unsigned long long>(number_of(actor, "mailbox")),
          static_cast<unsigned long long>(number_of(actor, "waiting")), static_cast<unsigned long long>(number_of(actor, "handled")),
          static_cast<unsigned long long>(number_of(actor, "failed")), static_cast<unsigned long long>(number_of(actor, "restarts")));
      out += cat(head, counts, text_of(actor, "summary"), "\n");
      if (const auto error = text_of(actor, "last_error"); !error.empty())
        out += cat(std::string(static_cast<std::size_t>(depth) * 2 + 6, ' '), "last error: ", error, "\n");
      print(id, depth + 1, out);
    }
  }

  std::map<std::string, const json::object*> by_id_;
  std::map<std::string, std::vector<std::string>> children_;
};

}  // namespace

absl::StatusOr<std::string> ask_operator(const std::string& socket, const std::string& method, const std::string& target) {
  asio::io_context io;
  local::socket to{io};
  if (auto status = connect(to, socket); !status.ok()) return status;
  http::request<http::empty_body> request{http::string_to_verb(method), target, 11};
  request.set(http::field::host, "operator");
  request.keep_alive(false);
  error_code error;
  http::write(to, request, error);
  if (error) return unreachable(socket, error);
  boost::beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMaxAnswer);
  http::read(to, buffer, parser, error);
  if (error) return unreachable(socket, error);
  auto answer = parser.release();
  if (answer.result() == http::status::ok) return std::move(answer.body());
  auto why = answer.body();
  while (why.ends_with('\n')) why.pop_back();
  return absl::FailedPreconditionError(why.empty() ? cat("the gateway answered ", answer.result_int(), " to ", target) : why);
}

absl::Status follow_operator(const std::string& socket, const std::function<bool(const std::string&, const std::string&)>& event) {
  asio::io_context io;
  local::socket to{io};
  if (auto status = connect(to, socket); !status.ok()) return status;
  error_code error;
  asio::write(to, asio::buffer(std::string_view{"GET /actors/stream HTTP/1.1\r\nHost: operator\r\n\r\n"}), error);
  if (error) return unreachable(socket, error);
  std::string held;
  auto next = [&](std::string_view end) -> std::string {
    const auto size = asio::read_until(to, asio::dynamic_buffer(held, kMaxAnswer), end, error);
    if (error) return {};
    auto out = held.substr(0, size);
    held.erase(0, size);
    return out;
  };
  const auto head = next("\r\n\r\n");
  if (!error && head.find(" 200 ") == std::string::npos)
    return absl::FailedPreconditionError(cat("the gateway answered ", head.substr(0, head.find('\r'))));
  while (!error) {
    const auto block = next("\n\n");
    std::string name;
    for (std::size_t at = 0; at < block.size();) {
      const auto end = std::min(block.find('\n', at), block.size());
      const auto line = block.substr(at, end - at);
      at = end + 1;
      if (line.starts_with("event: ")) name = line.substr(7);
      if (line.starts_with("data: ") && !event(name, line.substr(6))) return absl::OkStatus();
    }
  }
  return absl::UnavailableError("the gateway ended the stream");
}

absl::StatusOr<std::string> login_url(const std::string& text) {
  error_code error;
  const auto value = json::parse(text, error);
  const auto* object = value.if_object();
  if (error || object == nullptr || text_of(*object, "token").empty()) return absl::InternalError("the gateway's answer holds no token");
  return cat("http://", text_of(*object, "address"), "/login?token=", text_of(*object, "token"));
}

absl::StatusOr<std::string> actors_text(const std::string& text) {
  error_code error;
  const auto value = json::parse(text, error);
  const auto* top = value.if_object();
  const auto* processes = top == nullptr ? nullptr : top->if_contains("processes");
  if (error || processes == nullptr || !processes->is_array()) return absl::InternalError("the gateway's answer is no list of actors");
  std::string out = cat("    ", "ACTOR", std::string(41, ' '), "MAILBOX WAITING HANDLED FAILED RESTARTS\n");
  for (const auto& each : processes->as_array()) {
    const auto* process = each.if_object();
    if (process == nullptr) continue;
    const auto kind = text_of(*process, "kind");
    const auto sandbox = text_of(*process, "sandbox");
    out += cat(kind, sandbox.empty() ? "" : " of ", sandbox);
    if (kind == "sandbox") out += " (its own word: not trusted)";
    if (process->if_contains("ended_ms") != nullptr) {
      out += ", session ended";
    } else if (process->if_contains("stale") != nullptr) {
      out += cat(", silent for ", number_of(*process, "stale_ms") / 1'000, " s");
    }
    if (const auto note = text_of(*process, "note"); !note.empty()) out += cat(": ", note);
    if (const auto left = number_of(*process, "left_out"); left > 0) out += cat(", ", left, " more actors");
    out += "\n";
    if (const auto* actors = process->if_contains("actors"); actors != nullptr && actors->is_array())
      out += Tree{actors->as_array()}.text();
  }
  return out;
}

}  // namespace openshell::gateway
