#include "api/oidc/issuer.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "api/oidc/discovery.hpp"
#include "api/oidc/key_schedule.hpp"
#include "api/oidc/key_set.hpp"
#include "observability/log.hpp"
#include "observability/text.hpp"

namespace openshell::oidc {
namespace {

using Then = std::function<void(absl::StatusOr<api::Identity>)>;

std::int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

absl::Status failed_start(const absl::Status& why) {
  return absl::FailedPreconditionError(cat("OIDC initialization failed: ", to_std(why.message())));
}

struct Waiting {
  SignedToken token;
  Then then;
};

class FetchingIssuer final : public Issuer {
 public:
  explicit FetchingIssuer(const IssuerConfig& config)
      : rules_{config.issuer, config.audience, config.roles_claim, config.scopes_claim}, schedule_{config.key_lifetime} {
    https_.extra_ca_pem = config.ca_pem;
    https_.cancelled = [this] {
      const std::lock_guard lock{mutex_};
      return stopping_;
    };
  }

  ~FetchingIssuer() override {
    {
      const std::lock_guard lock{mutex_};
      stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
    for (auto& each : waiting_) each.then(absl::UnavailableError("the gateway is shutting down"));
  }

  absl::Status begin(const IssuerConfig& config) {
    if (auto status = check_url(config.issuer, config.loopback_http); !status.ok()) return failed_start(status);
    auto found = discover(config.issuer, https_);
    if (!found.ok()) return failed_start(found.status());
    if (auto status = check_key_url(config, found->key_set_url); !status.ok()) return failed_start(status);
    key_set_url_ = found->key_set_url;
    schedule_.started(Clock::now());
    auto keys = fetch();
    if (!keys.ok()) return failed_start(keys.status());
    if (keys->empty())
      log::warning("the OIDC issuer has no usable key yet; every token is refused until it has", {{"issuer", config.issuer}});
    take_over(std::move(keys));
    thread_ = std::thread{[this] { run(); }};
    return absl::OkStatus();
  }

  void identify(std::string_view compact, Then then) override {
    auto token = take_apart(compact);
    if (!token.ok()) return then(token.status());
    std::shared_ptr<const KeySet> keys;
    {
      std::unique_lock lock{mutex_};
      const auto now = Clock::now();
      const bool known = schedule_.usable(now) && keys_->has(token->key_id);
      const bool wanted = schedule_.stale(now) || !known;
      if (wanted && (schedule_.fetching() || schedule_.may_fetch(now))) {
        if (!schedule_.fetching()) ask_for_fetch(now);
        // Keys that still count are used while the issuer does not answer; otherwise the fetch decides.
        const bool wait = !known || !schedule_.troubled();
        if (wait && waiting_.size() >= kMaxWaiting) {
          lock.unlock();
          return then(absl::ResourceExhaustedError(cat(kMaxWaiting, " calls wait for the keys of the OIDC issuer; try again")));
        }
        if (wait) {
          waiting_.push_back({*std::move(token), std::move(then)});
          return;
        }
      }
      if (schedule_.usable(now)) keys = keys_;
    }
    then(judge(keys.get(), *token));
  }

 private:
  static absl::Status check_key_url(const IssuerConfig& config, const std::string& url) {
    if (url.empty()) return absl::FailedPreconditionError(cat("the discovery document of ", config.issuer, " has no 'jwks_uri'"));
    if (auto status = check_url(url, config.loopback_http); !status.ok()) return status;
    const std::string origin = origin_of(url);
    const bool allowed =
        origin == origin_of(config.issuer) || std::any_of(config.key_origins.begin(), config.key_origins.end(),
                                                          [&](const std::string& each) { return origin_of(each) == origin; });
    if (allowed) return absl::OkStatus();
    return absl::FailedPreconditionError(
        cat("jwks_uri ", url, " is not on the issuer's origin; name ", origin, " in jwks_allowed_origins to allow it"));
  }

  absl::StatusOr<api::Identity> judge(const KeySet* keys, const SignedToken& token) const {
    if (keys == nullptr) return absl::InternalError("OIDC key refresh failed");
    if (auto status = keys->verify(token); !status.ok()) return status;
    return identity_of(token.claims, rules_, unix_now());
  }

  absl::StatusOr<KeySet> fetch() const {
    auto answer = https_get(key_set_url_, https_);
    if (!answer.ok()) return answer.status();
    if (answer->status != 200) return absl::UnavailableError(cat(key_set_url_, " answered with HTTP ", answer->status));
    std::vector<std::string> left_out;
    auto keys = KeySet::parse(answer->body, &left_out);
    for (const auto& line : left_out) log::warning(line, {{"issuer", rules_.issuer}});
    if (!keys.ok()) return absl::UnavailableError(cat(key_set_url_, ": ", to_std(keys.status().message())));
    return keys;
  }

  void ask_for_fetch(Clock::time_point now) {
    schedule_.started(now);
    fetch_wanted_ = true;
    wake_.notify_all();
  }

  /// With the lock, or before the thread runs.
  void take_over(absl::StatusOr<KeySet> keys) {
    if (keys.ok() && !keys->empty()) {
      keys_ = std::make_shared<const KeySet>(*std::move(keys));
      schedule_.succeeded(Clock::now());
      return;
    }
    schedule_.failed();
    const std::string why = keys.ok() ? "the issuer has no usable key" : std::string{to_std(keys.status().message())};
    log::warning(cat("OIDC keys can not be renewed: ", why), {{"issuer", rules_.issuer}});
  }

  void run() {
    std::unique_lock lock{mutex_};
    while (true) {
      wake_.wait(lock, [this] { return stopping_ || fetch_wanted_; });
      if (stopping_) return;
      fetch_wanted_ = false;
      lock.unlock();
      auto keys = fetch();
      lock.lock();
      if (stopping_) return;
      take_over(std::move(keys));
      auto waiting = std::exchange(waiting_, {});
      const auto current = schedule_.usable(Clock::now()) ? keys_ : nullptr;
      lock.unlock();
      for (auto& each : waiting) each.then(judge(current.get(), each.token));
      lock.lock();
    }
  }

  ClaimRules rules_;
  HttpsOptions https_;
  std::string key_set_url_;
  std::mutex mutex_;
  std::condition_variable wake_;
  KeySchedule schedule_;
  std::shared_ptr<const KeySet> keys_ = std::make_shared<const KeySet>();
  std::vector<Waiting> waiting_;
  bool fetch_wanted_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Issuer>> Issuer::start(const IssuerConfig& config) {
  auto issuer = std::make_unique<FetchingIssuer>(config);
  if (auto status = issuer->begin(config); !status.ok()) return status;
  return issuer;
}

}  // namespace openshell::oidc
