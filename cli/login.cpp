#include "cli/login.hpp"

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <boost/json.hpp>
#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>

#include "api/oidc/discovery.hpp"
#include "api/oidc/https.hpp"
#include "api/oidc/token.hpp"
#include "cli/terminal.hpp"

namespace openshell::cli {
namespace {

namespace json = boost::json;
using Form = std::map<std::string, Secret>;

constexpr const char* kSecretVariable = "OPENSHELL_OIDC_CLIENT_SECRET";
constexpr const char* kNoBrowserVariable = "OPENSHELL_NO_BROWSER";
constexpr std::int64_t kMaxTokenSeconds = 10LL * 365 * 24 * 3600;
constexpr std::int64_t kDefaultPollSeconds = 5;
constexpr std::int64_t kMaxPollSeconds = 60;
constexpr std::int64_t kMaxDeviceSeconds = 1800;
constexpr std::size_t kShownReasonBytes = 200;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string text_of(const json::object& object, std::string_view key) {
  const auto* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string{value->get_string()} : "";
}

std::optional<std::int64_t> seconds_of(const json::object& object, std::string_view key, std::int64_t most) {
  const auto* value = object.if_contains(key);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  json::error_code error;
  const auto seconds = value->to_number<double>(error);
  if (error || !(seconds > 0)) return std::nullopt;
  return static_cast<std::int64_t>(std::min(seconds, static_cast<double>(most)));
}

/// What a provider says, fit for one line of a terminal.
std::string clean(std::string text) {
  text.resize(std::min(text.size(), kShownReasonBytes));
  for (char& c : text) c = c >= ' ' && c <= '~' ? c : '?';
  return text;
}

/// Endpoint of an identity provider: never in clear but on this machine.
absl::Status check_endpoint(std::string_view what, const std::string& url) {
  if (url.empty()) return absl::FailedPreconditionError(absl::StrCat("the identity provider offers no ", std::string{what}));
  return oidc::check_url(url, true);
}

struct Answer {
  int status = 0;
  json::object body;
  [[nodiscard]] std::string error() const { return text_of(body, "error"); }
};

absl::StatusOr<Answer> post(const std::string& url, const Form& form, const oidc::HttpsOptions& options) {
  auto answer = oidc::https_post(url, form, options);
  if (!answer.ok()) return answer.status();
  const Secret body{std::move(answer->body)};
  boost::system::error_code error;
  auto document = json::parse(body.reveal(), error);
  if (error || !document.is_object())
    return absl::FailedPreconditionError(absl::StrCat(url, " answered with HTTP ", answer->status, " and no JSON object"));
  return Answer{answer->status, std::move(document.get_object())};
}

absl::Status refused(const Answer& answer) {
  const std::string why = clean(text_of(answer.body, "error_description"));
  return absl::PermissionDeniedError(
      absl::StrCat("the identity provider refused (HTTP ", answer.status, "): ", clean(answer.error()), why.empty() ? "" : ", ", why));
}

class Session {
 public:
  Session(const Registration& gateway, bool insecure) : gateway_{gateway} {
    options_.verify = !insecure;
    client_id_ = gateway.oidc_client_id.empty() ? "openshell-cli" : gateway.oidc_client_id;
  }

  absl::Status discover() {
    if (gateway_.oidc_issuer.empty())
      return absl::FailedPreconditionError(absl::StrCat("the registration of gateway '", gateway_.name, "' names no oidc_issuer"));
    if (auto status = oidc::check_url(gateway_.oidc_issuer, true); !status.ok()) return status;
    auto found = oidc::discover(gateway_.oidc_issuer, options_);
    if (!found.ok()) return found.status();
    token_endpoint_ = found->token_endpoint;
    device_endpoint_ = found->device_endpoint;
    return check_endpoint("token_endpoint", token_endpoint_);
  }

  absl::StatusOr<TokenBundle> by_client_secret(const std::string& secret) {
    Form form = base("client_credentials");
    form["client_secret"] = Secret{secret};
    add_audience(form);
    if (!gateway_.oidc_scopes.empty()) form["scope"] = Secret{gateway_.oidc_scopes};
    return token(form);
  }

  absl::StatusOr<TokenBundle> by_refresh_token(const TokenBundle& old) {
    Form form = base("refresh_token");
    form["refresh_token"] = old.refresh_token;
    if (!gateway_.oidc_scopes.empty()) form["scope"] = Secret{gateway_.oidc_scopes};
    auto bundle = token(form);
    if (bundle.ok() && bundle->refresh_token.empty()) bundle->refresh_token = old.refresh_token;
    return bundle;
  }

  absl::StatusOr<TokenBundle> by_device() {
    if (auto status = check_endpoint("device authorization", device_endpoint_); !status.ok()) return status;
    unsigned char random[32];
    if (RAND_bytes(random, sizeof random) != 1) return absl::InternalError("no random bytes");
    const std::string verifier = absl::WebSafeBase64Escape(absl::string_view{reinterpret_cast<const char*>(random), sizeof random});
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256(reinterpret_cast<const unsigned char*>(verifier.data()), verifier.size(), digest);
    Form form{
        {"client_id", Secret{client_id_}},
        {"scope", Secret{gateway_.oidc_scopes.empty() ? "openid" : absl::StrCat("openid ", gateway_.oidc_scopes)}},
        {"code_challenge", Secret{absl::WebSafeBase64Escape(absl::string_view{reinterpret_cast<const char*>(digest), sizeof digest})}},
        {"code_challenge_method", Secret{"S256"}}};
    add_audience(form);
    auto begun = post(device_endpoint_, form, options_);
    if (!begun.ok()) return begun.status();
    if (begun->status != 200) return refused(*begun);
    const std::string code = text_of(begun->body, "device_code"), page = text_of(begun->body, "verification_uri");
    if (code.empty() || page.empty()) return absl::FailedPreconditionError("the identity provider's device answer is incomplete");
    const std::string complete = text_of(begun->body, "verification_uri_complete");
    note(absl::StrCat("Open ", clean(complete.empty() ? page : complete), " on any device and enter the code ",
                      clean(text_of(begun->body, "user_code"))));
    return poll(code, verifier, begun->body);
  }

 private:
  Form base(const std::string& grant) const { return {{"grant_type", Secret{grant}}, {"client_id", Secret{client_id_}}}; }
  void add_audience(Form& form) const {
    if (!gateway_.oidc_audience.empty()) form["audience"] = Secret{gateway_.oidc_audience};
  }

  absl::StatusOr<TokenBundle> token(const Form& form) const {
    auto answer = post(token_endpoint_, form, options_);
    if (!answer.ok()) return answer.status();
    return bundle_of(*answer);
  }

  absl::StatusOr<TokenBundle> bundle_of(const Answer& answer) const {
    if (answer.status < 200 || answer.status > 299) return refused(answer);
    TokenBundle bundle{Secret{text_of(answer.body, "access_token")}, Secret{text_of(answer.body, "refresh_token")}, std::nullopt,
                       gateway_.oidc_issuer, client_id_};
    if (bundle.access_token.empty()) return absl::FailedPreconditionError("the identity provider's answer has no access_token");
    if (const auto seconds = seconds_of(answer.body, "expires_in", kMaxTokenSeconds)) bundle.expires_at = unix_now() + *seconds;
    return bundle;
  }

  absl::StatusOr<TokenBundle> poll(const std::string& code, const std::string& verifier, const json::object& begun) const {
    Form form = base("urn:ietf:params:oauth:grant-type:device_code");
    form["device_code"] = Secret{code};
    form["code_verifier"] = Secret{verifier};
    auto interval = seconds_of(begun, "interval", kMaxPollSeconds).value_or(kDefaultPollSeconds);
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::seconds{seconds_of(begun, "expires_in", kMaxDeviceSeconds).value_or(kMaxDeviceSeconds)};
    while (std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::seconds{interval});
      auto answer = post(token_endpoint_, form, options_);
      if (!answer.ok()) return answer.status();
      if (answer->error() == "slow_down") {
        interval += kDefaultPollSeconds;
      } else if (answer->error() != "authorization_pending") {
        return bundle_of(*answer);
      }
    }
    return absl::DeadlineExceededError("nobody entered the code in time; run the login again");
  }

  const Registration& gateway_;
  oidc::HttpsOptions options_;
  std::string client_id_, token_endpoint_, device_endpoint_;
};

}  // namespace

absl::StatusOr<TokenBundle> log_in(const Registration& gateway, bool insecure) {
  const std::string secret = environment(kSecretVariable);
  const bool device = !environment(kNoBrowserVariable).empty();
  if (secret.empty() && !device) {
    return absl::UnimplementedError(absl::StrCat("login in a browser is not available in this version; set ", kNoBrowserVariable,
                                                 "=1 to log in with a code on another device, or ", kSecretVariable,
                                                 " for client credentials"));
  }
  Session session{gateway, insecure};
  if (auto status = session.discover(); !status.ok()) return status;
  return secret.empty() ? session.by_device() : session.by_client_secret(secret);
}

absl::StatusOr<TokenBundle> renew(const Registration& gateway, const TokenBundle& bundle, bool insecure) {
  const std::string secret = environment(kSecretVariable);
  if (bundle.refresh_token.empty() && secret.empty())
    return absl::FailedPreconditionError(absl::StrCat("there is no refresh token, and ", kSecretVariable, " is not set"));
  Session session{gateway, insecure};
  if (auto status = session.discover(); !status.ok()) return status;
  return bundle.refresh_token.empty() ? session.by_client_secret(secret) : session.by_refresh_token(bundle);
}

std::string shown_user(const TokenBundle& bundle) {
  const auto claims = oidc::unverified_claims(bundle.access_token.reveal());
  const std::string name = clean(text_of(claims, "preferred_username"));
  return name.empty() ? "" : absl::StrCat(" as ", name);
}

}  // namespace openshell::cli
