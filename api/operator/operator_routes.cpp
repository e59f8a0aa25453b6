#include "api/operator/operator_routes.hpp"

#include <array>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "api/operator/actor_metrics.hpp"
#include "api/operator/actors_json.hpp"
#include "api/operator/denial_trace.hpp"
#include "api/operator/page_files.hpp"
#include "observability/text.hpp"

namespace openshell::api {
namespace {

constexpr const char* kJson = "application/json";
constexpr const char* kPrometheus = "text/plain; version=0.0.4";
constexpr std::size_t kMaxQueryValue = 256;

ActorMap::Time now() { return std::chrono::steady_clock::now(); }

OperatorAnswer text(int status, std::string body) {
  OperatorAnswer out;
  out.status = status;
  out.body = std::move(body);
  return out;
}

OperatorAnswer json_answer(std::string body, int status = 200) {
  OperatorAnswer out;
  out.status = status;
  out.content_type = kJson;
  out.body = std::move(body);
  return out;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string error_json(const absl::Status& status) {
  return boost::json::serialize(boost::json::object{{"error", std::string{to_std(status.message())}}});
}

}  // namespace

std::string query_value(const std::string& target, std::string_view name) {
  const auto question = target.find('?');
  if (question == std::string::npos) return {};
  std::string_view rest{target};
  rest.remove_prefix(question + 1);
  while (!rest.empty()) {
    const auto end = std::min(rest.find('&'), rest.size());
    const auto pair = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!pair.starts_with(name) || !pair.substr(name.size()).starts_with('=')) continue;
    std::string out;
    for (auto value = pair.substr(name.size() + 1); !value.empty(); value.remove_prefix(1)) {
      if (out.size() == kMaxQueryValue) return {};
      if (value.front() != '%') {
        out += value.front();
        continue;
      }
      const int high = value.size() > 2 ? hex_digit(value[1]) : -1;
      const int low = value.size() > 2 ? hex_digit(value[2]) : -1;
      if (high < 0 || low < 0) return {};
      out += static_cast<char>(high * 16 + low);
      value.remove_prefix(2);
    }
    return out;
  }
  return {};
}

OperatorRoutes::OperatorRoutes(std::shared_ptr<ActorWatch> watch, std::string epoch, std::string browser_origin,
                               std::function<std::string()> metrics_text)
    : watch_{std::move(watch)},
      epoch_{std::move(epoch)},
      browser_origin_{std::move(browser_origin)},
      metrics_text_{std::move(metrics_text)},
      access_{random_bytes, browser_origin_.substr(browser_origin_.rfind(':') + 1)} {}

/// Whoever may not come in, and why.
std::optional<OperatorAnswer> OperatorRoutes::guard(const OperatorRequest& request, const std::string& path) {
  if (request.entrance == Entrance::browser) {
    const auto colon = browser_origin_.rfind(':');
    if (request.host != browser_origin_ && request.host != cat("localhost", browser_origin_.substr(colon)))
      return text(403, "host not allowed\n");
  }
  const bool post = request.entrance == Entrance::socket && path == "/login-token" && request.method == "POST";
  if (request.method != "GET" && request.method != "HEAD" && !post) return text(405, {});
  if (request.entrance != Entrance::browser || path == "/login") return std::nullopt;
  if (!request.fetch_site.empty() && request.fetch_site != "same-origin" && request.fetch_site != "none")
    return text(403, "cross-site request\n");
  if (!access_.admitted(access_.cookie_of(request.cookie), now()))
    return text(401, "run `openshell-gateway operator-url` and open what it prints\n");
  return std::nullopt;
}

OperatorAnswer OperatorRoutes::login(const OperatorRequest& request) {
  const auto cookie = access_.login(query_value(request.target, "token"), now());
  if (!cookie)
    return text(403, "this link was used, is older than a minute, or was never made: run `openshell-gateway operator-url` again\n");
  OperatorAnswer out;
  out.status = 303;
  out.location = "/";
  out.set_cookie = access_.set_cookie(*cookie);
  return out;
}

void OperatorRoutes::answer(const OperatorRequest& request, Then then) {
  const auto path = request.target.substr(0, request.target.find('?'));
  if (auto refusal = guard(request, path)) return then(*std::move(refusal));
  if (path == "/metrics") return metrics(std::move(then));
  if (request.entrance == Entrance::metrics) return then(text(404, {}));
  if (path == "/login-token" && request.method == "POST") {
    if (browser_origin_.empty()) return then(text(404, "operator_bind_address is not set\n"));
    return then(json_answer(boost::json::serialize(boost::json::object{
        {"token", access_.make_token(now())}, {"expires_in", BrowserAccess::kTokenLife.count()}, {"address", browser_origin_}})));
  }
  if (path == "/login") return then(request.entrance == Entrance::browser ? login(request) : text(404, {}));
  if (path == "/actors") return actors(std::move(then));
  if (path == "/actors/inspect") return inspect(request.target, std::move(then));
  if (path == "/actors/stream") {
    OperatorAnswer out;
    out.status = 200;
    out.content_type = "text/event-stream";
    out.stream = true;
    return then(std::move(out));
  }
  if (path == "/denials")
    return trace_denials(watch_->source(), query_value(request.target, "id"),
                         [then](std::string body) { then(json_answer(std::move(body))); });
  for (const auto& file : page_files()) {
    if (path != file.path) continue;
    OperatorAnswer out;
    out.status = 200;
    out.content_type = file.content_type;
    out.body = file.content;
    return then(std::move(out));
  }
  then(text(404, {}));
}

void OperatorRoutes::actors(Then then) {
  watch_->when_known([this, then = std::move(then)] { then(json_answer(actors_json(watch_->map(), epoch_, now()))); });
}

void OperatorRoutes::inspect(const std::string& target, Then then) {
  watch_->inspect(query_value(target, "process"), query_value(target, "actor"),
                  [then = std::move(then)](absl::StatusOr<ActorSnapshot> answer) {
                    then(answer.ok() ? json_answer(actor_json(*answer)) : json_answer(error_json(answer.status())));
                  });
}

void OperatorRoutes::metrics(Then then) {
  watch_->refresh_own([this, then = std::move(then)] {
    OperatorAnswer out;
    out.status = 200;
    out.content_type = kPrometheus;
    out.body = metrics_text_() + actor_metrics(watch_->map(), now());
    then(std::move(out));
  });
}

}  // namespace openshell::api
