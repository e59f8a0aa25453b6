#include "programs/supervisor/startup.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>
#include <caf/all.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "messages/status_error.hpp"
#include "policy/baseline.hpp"
#include "policy/parse.hpp"
#include "sandbox.pb.h"

namespace openshell::supervisor {
namespace {

constexpr std::chrono::seconds kAnswerTimeout{15};  // above the RPC's own deadline
constexpr std::size_t kMaxPolicyBytes = 262'144;
constexpr const char* kRejectedText =
    "Selected startup policy was rejected; replace the policy or repair its provider and middleware bindings";
constexpr const char* kIdentityText = "Selected process policy does not match the workload identity";

bool transient(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return true;
    default:
      return false;
  }
}

constexpr std::chrono::milliseconds kLookAround{50};  // how often a wait for the sandbox asks whether the process is to stop

absl::Status stopped() { return absl::CancelledError("the supervisor is stopping"); }

/// Temp file, rename; `durable`: both on the disk.
absl::Status write_whole(const std::string& path, const std::string& content, bool durable) {
  const std::filesystem::path target{path};
  const auto directory = target.parent_path();
  const auto temporary = (directory / ("." + target.filename().string() + ".tmp-" + std::to_string(::getpid()))).string();
  const auto failed = [&](const char* what) { return absl::InternalError(std::string{what} + " '" + path + "': " + std::strerror(errno)); };
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return failed("cannot create");
  const bool written =
      ::write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size()) && (!durable || ::fsync(fd) == 0);
  ::close(fd);
  if (!written) return failed("cannot write");
  if (::rename(temporary.c_str(), path.c_str()) != 0) return failed("cannot rename to");
  if (!durable) return absl::OkStatus();
  const int dir = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return failed("cannot open the directory of");
  ::fsync(dir);
  ::close(dir);
  return absl::OkStatus();
}

}  // namespace

boundary::BoundaryPolicy static_policy(const sandbox::v1::SandboxPolicy& authored) {
  auto policy = authored;
  if (!policy.has_filesystem()) *policy.mutable_filesystem() = policy::restrictive_default().filesystem();
  policy::add_runtime_paths(policy);
  boundary::BoundaryPolicy out;
  out.read_only.assign(policy.filesystem().read_only().begin(), policy.filesystem().read_only().end());
  out.read_write.assign(policy.filesystem().read_write().begin(), policy.filesystem().read_write().end());
  out.include_workdir = policy.filesystem().include_workdir();
  out.landlock = policy.landlock().compatibility() == "hard_requirement" ? boundary::LandlockMode::hard_requirement
                                                                         : boundary::LandlockMode::best_effort;
  if (!policy.process().run_as_user().empty()) out.run_as_user = policy.process().run_as_user();
  if (!policy.process().run_as_group().empty()) out.run_as_group = policy.process().run_as_group();
  return out;
}

/// Whole or not at all, but not on the disk: after a crash of the host nothing of this generation runs, and nobody asks.
absl::Status write_confirmed(const std::string& state_dir, const std::string& generation) {
  return write_whole(state_dir + "/confirmed", generation, false);
}

absl::Status write_durably(const std::string& path, const std::string& content) { return write_whole(path, content, true); }

/// Calls until it answers: five attempts, 1, 2, 4, 4 s between them; a code that says "for good" ends it at once.
template <class T, class Call>
absl::StatusOr<T> Startup::retried(const char* operation, Call call) {
  auto wait = limits_.first_backoff;
  for (int attempt = 1;; ++attempt) {
    absl::StatusOr<T> answer = call();
    if (answer.ok() || !transient(answer.status().code()) || answer.status().code() == absl::StatusCode::kAborted) return answer;
    spdlog::warn("{} failed (attempt {}): {}", operation, attempt, answer.status().ToString());
    if (attempt >= limits_.attempts) {
      return absl::Status{answer.status().code(), std::string{operation} + " failed after " + std::to_string(attempt) +
                                                      " attempts: " + std::string{answer.status().message()}};
    }
    if (pause_(wait)) return stopped();
    wait = std::min(wait * 2, limits_.first_backoff * 4);
  }
}

absl::StatusOr<ConfigSnapshot> Startup::config() {
  return retried<ConfigSnapshot>("GetSandboxConfig", [this] {
    caf::scoped_actor self{system_};
    absl::StatusOr<ConfigSnapshot> answer = absl::UnknownError("no answer");
    self->request(gateway_, kAnswerTimeout, config_atom::value)
        .receive([&](ConfigSnapshot& snapshot) { answer = std::move(snapshot); },
                 [&](const caf::error& error) { answer = to_status(error); });
    return answer;
  });
}

absl::StatusOr<ProviderEnvironment> Startup::environment() {
  return retried<ProviderEnvironment>("GetSandboxProviderEnvironment", [this] {
    caf::scoped_actor self{system_};
    absl::StatusOr<ProviderEnvironment> answer = absl::UnknownError("no answer");
    self->request(gateway_, kAnswerTimeout, environ_atom::value)
        .receive([&](ProviderEnvironment& environment) { answer = std::move(environment); },
                 [&](const caf::error& error) { answer = to_status(error); });
    return answer;
  });
}

absl::Status Startup::report(const AdmissionReport& admission) {
  return retried<bool>("ReportSandboxConfiguration",
                       [&] {
                         caf::scoped_actor self{system_};
                         absl::StatusOr<bool> answer = true;
                         self->request(gateway_, kAnswerTimeout, admit_atom::value, admission)
                             .receive([] {}, [&](const caf::error& error) { answer = to_status(error); });
                         return answer;
                       })
      .status();
}

/// PENDING, fenced by the instance that the gateway knew: ABORTED means that another one came between, so it is read again.
absl::Status Startup::register_instance() {
  for (int attempt = 0; attempt < limits_.attempts; ++attempt) {
    auto snapshot = config();
    if (!snapshot.ok()) return snapshot.status();
    AdmissionReport admission;
    admission.expected_instance_id = snapshot->instance_id;
    // Beside it, since it depends on nothing: one that belongs to another configuration, or none, is asked for anew.
    caf::scoped_actor self{system_};
    auto environment = self->request(gateway_, kAnswerTimeout, environ_atom::value);
    auto status = report(admission);
    environment.receive([this](ProviderEnvironment& fetched) { prefetched_ = std::move(fetched); }, [](const caf::error&) {});
    if (status.ok()) {
      snapshot->instance_id = fence_ = instance_id_;
      registered_ = *std::move(snapshot);
    }
    if (status.code() != absl::StatusCode::kAborted) return status;
    if (pause_(limits_.first_backoff)) return stopped();
  }
  return absl::AbortedError("another supervisor keeps registering for this sandbox");
}

/// A question that outlives the one who asked: a sandbox that does not answer must not hold up the end.
struct Startup::Discovery {
  std::promise<absl::StatusOr<boundary::ImagePolicy>> promise;
  std::shared_future<absl::StatusOr<boundary::ImagePolicy>> image{promise.get_future()};
  std::atomic<bool> over{false};
};

Startup::~Startup() {
  if (discovery_) discovery_->over = true;
}

void Startup::discover() {
  discovery_ = std::make_shared<Discovery>();
  try {
    std::thread{[discovery = discovery_, boundary = boundary_] {
      discovery->promise.set_value(boundary->discover_policy([&discovery] { return discovery->over.load(); }));
    }}.detach();  // a question to the sandbox may take its whole deadline, and nothing waits for it that stops
  } catch (const std::system_error& error) {
    discovery_->promise.set_value(
        absl::ResourceExhaustedError(std::string{"the sandbox is not asked for its image's policy: "} + error.what()));
  }
}

absl::StatusOr<std::shared_ptr<sandbox::v1::SandboxPolicy>> Startup::image_policy() {
  if (discovered_) return discovered_;
  while (discovery_->image.wait_for(kLookAround) != std::future_status::ready) {
    if (pause_(std::chrono::milliseconds{0})) return stopped();
  }
  const auto& image = discovery_->image.get();
  if (!image.ok()) return image.status();
  if (image->invalid || (image->yaml && image->yaml->size() > kMaxPolicyBytes))
    return absl::InvalidArgumentError("the image's policy file cannot be read");
  if (!image->yaml) {
    discovered_ = std::make_shared<sandbox::v1::SandboxPolicy>(policy::restrictive_default());
    return discovered_;
  }
  auto loaded = policy::load_policy(*image->yaml, "/etc/openshell/policy.yaml");
  if (!loaded.ok()) return absl::InvalidArgumentError("the image's policy is invalid");
  discovered_ = std::shared_ptr<sandbox::v1::SandboxPolicy>{std::move(loaded.policy)};
  return discovered_;
}

/// Sends the discovered or enriched policy where the gateway's needs one; true: something was sent, read the configuration again.
absl::StatusOr<bool> Startup::supply_policy(const ConfigSnapshot& snapshot) {
  if (snapshot.source == PolicySource::global) return false;
  if (snapshot.policy && snapshot.policy_hash == uploaded_hash_) return false;  // the gateway kept its own form: take it as it is
  auto policy =
      snapshot.policy ? std::make_shared<sandbox::v1::SandboxPolicy>(*snapshot.policy) : std::shared_ptr<sandbox::v1::SandboxPolicy>{};
  if (!policy) {
    auto discovered = image_policy();
    if (!discovered.ok()) return discovered.status();
    policy = std::make_shared<sandbox::v1::SandboxPolicy>(**discovered);
  }
  const bool enriched = policy::enrich_baseline(*policy);
  if (snapshot.policy && !enriched) return false;
  policy::strip_provider_rules(*policy);
  auto sent = retried<bool>("UpdateConfig", [&] {
    caf::scoped_actor self{system_};
    absl::StatusOr<bool> answer = true;
    self->request(gateway_, kAnswerTimeout, submit_atom::value, PolicyUpload{policy})
        .receive([] {}, [&](const caf::error& error) { answer = to_status(error); });
    return answer;
  });
  if (!sent.ok()) return sent.status();
  auto again = config();
  if (again.ok()) uploaded_hash_ = again->policy_hash;
  spdlog::info("policy {} and stored", snapshot.policy ? "enriched with baseline paths" : "discovered");
  return true;
}

absl::Status Startup::reject(const ConfigSnapshot& snapshot, std::uint64_t environment_revision, const absl::Status& why,
                             const char* text) {
  const auto identity = std::to_string(snapshot.config_revision) + '/' + std::string{why.message()};
  if (identity != last_rejection_)
    spdlog::error("configuration of version {} rejected: {}", snapshot.version.value, std::string{why.message()});
  last_rejection_ = identity;
  AdmissionReport admission{
      AdmissionState::rejected, snapshot.version, snapshot.policy_hash, snapshot.config_revision, environment_revision, text, fence_};
  auto status = report(admission);
  if (status.code() == absl::StatusCode::kAborted) return absl::OkStatus();  // it moved on: the next round sees it
  return status;
}

/// Until a configuration is accepted: fetch, complete, build, report. A rejected one is tried again when it changed; the gateway's window
/// decides the end.
absl::StatusOr<Candidate> Startup::admit(EgressRuntime& runtime, std::unique_ptr<PreparedRuntime>& prepared) {
  std::uint64_t failed_revision = 0;
  while (true) {
    auto snapshot = registered_ ? absl::StatusOr<ConfigSnapshot>{*std::exchange(registered_, std::nullopt)} : config();
    if (!snapshot.ok()) return snapshot.status();
    fence_ = snapshot->instance_id.empty() ? fence_ : snapshot->instance_id;
    absl::Status problem;
    auto supplied = supply_policy(*snapshot);
    if (supplied.ok() && *supplied) continue;
    if (!supplied.ok()) {
      if (supplied.status().code() != absl::StatusCode::kInvalidArgument) return supplied.status();
      problem = supplied.status();
    } else if (!snapshot->admitted) {
      problem = absl::FailedPreconditionError(snapshot->configuration_error.empty() ? "the gateway does not admit the configuration"
                                                                                    : snapshot->configuration_error);
    }
    ProviderEnvironment provider_environment;
    if (problem.ok()) {
      const auto belongs = [&snapshot](const ProviderEnvironment& fetched) {
        return fetched.policy_hash == snapshot->policy_hash && fetched.attachment_epoch == snapshot->provider_attachment_epoch;
      };
      const auto prefetched = std::exchange(prefetched_, std::nullopt);
      auto fetched = prefetched && belongs(*prefetched) ? absl::StatusOr<ProviderEnvironment>{*prefetched} : environment();
      if (!fetched.ok()) return fetched.status();
      provider_environment = *std::move(fetched);
      if (!belongs(provider_environment)) {
        if (pause_(limits_.first_backoff / 10)) return stopped();
        continue;  // a write came between the two: fetch both again
      }
      Candidate candidate{*snapshot, provider_environment, true, true};
      auto built = runtime.prepare(candidate);
      if (built.ok()) {
        AdmissionReport accepted{AdmissionState::accepted,
                                 snapshot->version,
                                 snapshot->policy_hash,
                                 snapshot->config_revision,
                                 snapshot->provider_env_revision,
                                 {},
                                 fence_};
        auto status = report(accepted);
        if (status.ok()) {
          if (!last_rejection_.empty()) spdlog::info("the configuration was repaired and accepted [version:{}]", snapshot->version.value);
          prepared = *std::move(built);
          return candidate;
        }
        if (status.code() != absl::StatusCode::kAborted) return status;
        if (pause_(limits_.first_backoff / 10)) return stopped();
        continue;
      }
      problem = built.status();
      if (snapshot->source == PolicySource::sandbox && snapshot->version.value > 0 && failed_revision != snapshot->config_revision) {
        failed_revision = snapshot->config_revision;
        caf::scoped_actor self{system_};
        self->request(gateway_, kAnswerTimeout, reported_atom::value,
                      PolicyStatus{snapshot->version, PolicyOutcome::failed, std::string{problem.message()}, Acknowledgement::initial})
            .receive([] {},
                     [](const caf::error& error) { spdlog::warn("the failed policy was not reported: {}", to_status(error).ToString()); });
      }
    }
    if (auto status = reject(*snapshot, snapshot->provider_env_revision, problem, kRejectedText); !status.ok()) return status;
    if (pause_(limits_.repair_pause)) return stopped();
  }
}

/// Attach and confirm, with what was admitted.
absl::Status Startup::bind(const Candidate& admitted) {
  const auto image = image_policy();  // the sandbox listens, whatever it said
  if (!image.ok() && image.status().code() != absl::StatusCode::kInvalidArgument) return image.status();
  static_policy_ = static_policy(*admitted.snapshot.policy);
  auto snapshot = boundary_->attach(static_policy_);
  if (!snapshot.ok()) return snapshot.status();
  auto confirmation = boundary_->confirm();
  if (!confirmation.ok()) return confirmation.status();
  return write_confirmed(options_.state_dir, boundary_->descriptor().generation);
}

absl::Status Startup::introduce() {
  discover();
  return register_instance();
}

absl::StatusOr<Started> Startup::run(EgressRuntime& runtime, const PublicCa& ca, const std::function<void()>& serve) {
  std::unique_ptr<PreparedRuntime> prepared;
  Candidate admitted;
  while (true) {
    auto candidate = admit(runtime, prepared);
    if (!candidate.ok()) return candidate.status();
    admitted = *std::move(candidate);
    auto bound = bind(admitted);
    if (bound.ok()) break;
    // What contradicts the workload's identity can be repaired by another policy; every other refusal is final.
    if (bound.code() != absl::StatusCode::kInvalidArgument) return bound;
    if (auto status = reject(admitted.snapshot, admitted.environment.revision, bound, kIdentityText); !status.ok()) return status;
    if (pause_(limits_.repair_pause)) return stopped();
  }

  const auto child_environment = EgressRuntime::child_environment_of(*prepared);
  auto in_force = std::make_shared<std::promise<void>>();
  runtime.publish(std::move(prepared), [in_force] { in_force->set_value(); });
  in_force->get_future().wait();  // no program runs before its rules are whole
  serve();

  boundary::StartAgent start;
  start.sandbox_id = options_.sandbox_id;
  start.spec = agent_spec(options_);
  start.policy = static_policy_;
  if (!ca.certificate_pem.empty()) {
    start.ca_cert = ca.certificate_pem;
    start.ca_bundle = ca.bundle_pem;
  }
  start.provider_env_revision = admitted.environment.revision;
  start.provider_env = child_environment;
  auto answer = boundary_->call_and_wait(start, kCallDeadline);
  if (!answer.ok()) return answer.status();
  auto started = result_as<boundary::Started>(*answer);
  if (!started.ok()) return started.status();
  spdlog::info("Process started: {}", started->process_id);
  return Started{admitted.snapshot, admitted.environment, started->process_id};
}

}  // namespace openshell::supervisor
