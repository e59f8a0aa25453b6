#include "programs/gateway/gateway.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <boost/json/serialize.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "api/authentication.hpp"
#include "api/authorization.hpp"
#include "api/control_plane.hpp"
#include "api/front.hpp"
#include "api/handlers.hpp"
#include "api/operator/operator_server.hpp"
#include "api/shell.hpp"
#include "api/workspace_scope.hpp"
#include "observability/log.hpp"
#include "observability/text.hpp"
#include "programs/gateway/readiness.hpp"
#include "providers/credential_store.hpp"
#include "storage/store.hpp"

#ifdef OPENSHELL_WITH_CONTROL_PLANE
#include "api/sandboxes/control_plane.hpp"
#endif

namespace openshell::gateway {
namespace {

constexpr std::int64_t kCallGraceMs = 200;  ///< calls that run when the gateway ends
constexpr std::chrono::seconds kControlPlaneLimit{30};

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

/// Two gateways on one state directory would tear at the same sandboxes. The lock goes with the process.
absl::Status lock_state(const std::string& directory, Descriptor& lock) {
  const std::string path = cat(directory, "/gateway/lock");
  lock.fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock.fd < 0) return absl::FailedPreconditionError(cat("failed to open ", path, ": ", std::strerror(errno)));
  if (::flock(lock.fd, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(cat("another gateway runs with the state directory ", directory));
}

std::string read_file(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

api::TlsMaterial load_tls(const TlsFiles& files) {
  return {read_file(files.certificate), Secret{read_file(files.key)}, files.client_ca.empty() ? std::string{} : read_file(files.client_ca)};
}

[[maybe_unused]] api::DriverInfo describe(const std::string& name, const drivers::Capabilities& capabilities) {
  return {name,
          capabilities.driver_name,
          capabilities.driver_version,
          capabilities.resources.cpu_limit,
          capabilities.resources.memory_limit,
          capabilities.resources.gpu_default_selection,
          capabilities.resources.gpu_count_selection};
}

class RunningGateway final : public Gateway {
 public:
  explicit RunningGateway(GatewayConfig config) : config_{std::move(config)} {}
  ~RunningGateway() override { (void)take_down(); }

  absl::Status bring_up() {
    using Step = absl::Status (RunningGateway::*)();
    for (const Step step : {&RunningGateway::prepare, &RunningGateway::find_issuer, &RunningGateway::open_storage, &RunningGateway::bind,
                            &RunningGateway::make_control_plane, &RunningGateway::serve}) {
      if (auto status = (this->*step)(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  std::string endpoint() const override {
    const Address address{config_.bind.ip, front_->port()};
    return cat(config_.tls ? "https://" : "http://", address.text());
  }

  absl::Status stop() override {
    if (readiness_) readiness_->set_draining();
    return take_down();
  }

 private:
  absl::Status prepare() {
    auto table = api::AuthorizationTable::build();
    if (!table.ok()) return table.status();
    table_ = *std::move(table);
    if (config_.tokens) {
      auto tokens = api::TokenAuthority::load(*config_.tokens);
      if (!tokens.ok()) return tokens.status();
      tokens_ = *std::move(tokens);
    }
    if (auto status = config_.places.make(::geteuid()); !status.ok()) return status;
    return lock_state(config_.places.state, lock_);
  }

  absl::Status find_issuer() {
    if (!config_.oidc) return absl::OkStatus();
    auto issuer = oidc::Issuer::start(config_.oidc->issuer);
    if (!issuer.ok()) return issuer.status();
    issuer_ = *std::move(issuer);
    return absl::OkStatus();
  }

  /// From the key that signs tokens, else from that of the certificate. Another key makes older admissions unrepeatable.
  std::optional<api::FingerprintKey> fingerprint_key() const {
    const std::string path = config_.tokens ? config_.tokens->signing_key_path : config_.tls ? config_.tls->key : std::string{};
    const Secret key{path.empty() ? std::string{} : read_file(path)};
    return key.empty() ? std::nullopt : std::optional{api::FingerprintKey{key}};
  }

  absl::Status open_storage() {
    auto store = storage::open_store(config_.database_url);
    if (!store.ok()) return store.status();
    store_ = *std::move(store);
    const auto& storage = config_.credential_storage;
    auto credentials = storage.key_encryption_key_env ? providers::CredentialStore::from_environment(*storage.key_encryption_key_env)
                                                      : providers::CredentialStore::from_file(storage.key_encryption_key_path.value_or(
                                                            cat(config_.places.state, "/gateway/credentials/key-encryption-key.bin")));
    if (!credentials.ok()) return credentials.status();
    credentials_ = *std::move(credentials);
    api::AdmissionOptions admissions;
    admissions.store = store_.get();
    admissions.key = fingerprint_key();
    admissions_ = std::make_shared<api::Admissions>(std::move(admissions));
    return api::ensure_default_workspace(*store_);
  }

  /// What clients may ask without credentials: how to get some.
  api::HttpAnswer answer_http(const api::HttpRequest& request) const {
    if (!config_.oidc || request.target.substr(0, request.target.find('?')) != "/auth/oidc-config") return {404, {}, {}};
    if (request.method != "GET" && request.method != "HEAD") return {405, {}, {}};
    const boost::json::object settings{{"issuer", config_.oidc->issuer.issuer}, {"audience", config_.oidc->issuer.audience}};
    return {200, "application/json", boost::json::serialize(settings)};
  }

  /// Before the driver is asked, which re-adopts sandboxes: a port that is taken must end the start while it has touched nothing.
  absl::Status bind() {
    api::FrontOptions options;
    options.address = config_.bind.ip;
    options.port = config_.bind.port;
    options.grpc = [this](int fd) { shell_->serve(fd); };
    if (config_.tls) options.tls = load_tls(*config_.tls);
    options.http = [this](const api::HttpRequest& request) { return answer_http(request); };
    auto front = api::Front::bind(std::move(options));
    if (!front.ok()) return front.status();
    front_ = *std::move(front);
    readiness_ = std::make_unique<Readiness>(*store_, config_.reported_version, config_.warnings);
    if (config_.health) {
      auto status = front_->add_http("health port", config_.health->ip, config_.health->port,
                                     [this](const api::HttpRequest& request) { return readiness_->answer(request); });
      if (!status.ok()) return status;
    }
    return bind_operator();
  }

  /// The operator interface and the metrics port.
  absl::Status bind_operator() {
    api::OperatorOptions options;
    options.socket = config_.operator_socket;
    if (config_.operator_bind) options.browser = {config_.operator_bind->ip, config_.operator_bind->port};
    if (config_.metrics) options.metrics = {config_.metrics->ip, config_.metrics->port};
    options.gateway_id = config_.name;
    options.metrics_text = [this] { return readiness_->metrics(); };
    auto server = api::OperatorServer::bind(std::move(options));
    if (!server.ok()) return server.status();
    operator_ = *std::move(server);
    return absl::OkStatus();
  }

#ifdef OPENSHELL_WITH_CONTROL_PLANE
  absl::Status make_control_plane() {
    drivers::ProcessDriverOptions process = config_.process;
    process.gateway_endpoint = config_.process_endpoint.empty() ? supervisor_endpoint() : config_.process_endpoint;
    if (config_.tls) process.gateway_ca_pem = read_file(config_.guest_tls_ca);
    auto driver = drivers::make_process_driver(std::move(process));
    if (!driver.ok()) return driver.status();
    driver_ = *std::move(driver);
    const auto capabilities = driver_->capabilities();
    for (const auto& note : capabilities.notes) log::info(note, {{ "driver", config_.compute_driver }});
    driver_info_ = describe(config_.compute_driver, capabilities);
    api::ControlPlaneOptions options;
    options.store = store_.get();
    options.tokens = tokens_.get();
    options.credentials = credentials_.get();
    options.driver = driver_.get();
    options.supervisor = config_.supervisor;
    options.service_address = [this] { return service_address(); };
    options.gateway_outage_limit_secs = config_.gateway_outage_limit_secs;
    options.gateway_name = config_.name;
    options.ssh = {config_.bind.ip, front_->port(), config_.tls.has_value(), std::chrono::seconds { config_.ssh_session_ttl_secs }};
    options.keep_on_shutdown = config_.keep_on_shutdown;
    options.config_push = config_.config_push;
    options.policy_validation_failure_mode = config_.policy_validation_failure_mode;
    auto control = api::make_control_plane(std::move(options));
    if (!control.ok()) return control.status();
    control_ = *std::move(control);
    return absl::OkStatus();
  }
#else
  absl::Status make_control_plane() {
    log::warning("this build has no control plane: sandbox calls are not implemented");
    return absl::OkStatus();
  }
#endif

  /// Supervisors run on this host; a wildcard address is reached through loopback.
  std::string supervisor_endpoint() const {
    Address address{config_.bind.ip, front_->port()};
    if (address.ip == "0.0.0.0") address.ip = "127.0.0.1";
    if (address.ip == "::") address.ip = "::1";
    return cat(config_.tls ? "https://" : "http://", address.text());
  }

  api::ServiceAddress service_address() const {
    api::ServiceAddress out;
    out.scheme = config_.tls ? "https" : "http";
    out.port = front_->port();
    return out;
  }

  void add_handlers() {
    api::add_info_handlers(router_, {config_.reported_version, std::string{kOurVersion}, driver_info_});
    api::add_token_handlers(router_, tokens_.get(), control_.get());
    api::add_workspace_handlers(router_, store_.get());
    api::add_member_handlers(router_, store_.get());
    api::add_service_handlers(router_, {store_.get(), [this] { return service_address(); }});
    api::ProviderHandlerOptions options;
    options.store = store_.get();
    options.credentials = credentials_.get();
    if (control_) {
      options.attached_to = [this](storage::Transaction& tx, const std::string& workspace, const std::string& provider) {
        return control_->sandboxes_with_provider(tx, workspace, provider);
      };
      options.check_attached = [this](storage::Transaction& tx, const std::string& workspace, const std::vector<std::string>& sandboxes) {
        return control_->check_attached(tx, workspace, sandboxes);
      };
      options.profile_impact = [this](storage::Transaction& tx, const providers::Profile& candidate, const std::string& operation) {
        return control_->profile_impact(tx, candidate, operation);
      };
      options.receipts = [this](const std::string& workspace, const std::vector<std::string>& sandboxes, const std::string& provider,
                                const std::string& mutation_id,
                                auto then) { control_->update_receipts(workspace, sandboxes, provider, mutation_id, std::move(then)); };
      options.changed = [this](const std::string& workspace, const std::string& provider) {
        control_->provider_changed(workspace, provider);
      };
      control_->add_handlers(router_);
    }
    api::add_credential_handlers(router_, {store_.get(), credentials_.get()});
    api::add_provider_handlers(router_, std::move(options));
  }

  absl::Status serve() {
    add_handlers();
    const api::AuthenticationConfig authentication{config_.mtls_users, config_.operators, config_.allow_unauthenticated_users};
    authenticator_ = std::make_unique<api::Authenticator>(authentication, tokens_.get(), control_.get(), issuer_.get());
    api::ShellOptions options;
    options.router = &router_;
    options.authenticator = authenticator_.get();
    options.table = &table_;
    if (config_.oidc) options.roles = {true, config_.oidc->admin_role, config_.oidc->user_role, !config_.oidc->issuer.scopes_claim.empty()};
    options.rate_limit = {config_.rate_limit_requests, config_.rate_limit_window_seconds};
    options.admissions = admissions_;
    if (config_.tls) options.tls = load_tls(*config_.tls);
    auto shell = api::Shell::start(std::move(options));
    if (!shell.ok()) return shell.status();
    shell_ = *std::move(shell);
    if (control_) control_->start();
#ifdef OPENSHELL_WITH_CONTROL_PLANE
    operator_->open(api::actor_source_of(*control_));
#endif
    front_->open();
    return absl::OkStatus();
  }

  absl::Status take_down() {
    absl::Status status;
    if (front_) front_->stop_accepting();
    if (operator_) operator_->close();
    if (shell_) shell_->stop(kCallGraceMs);
    issuer_.reset();  // its thread may still answer calls of the shell
    if (control_) status = control_->shutdown(kControlPlaneLimit);
    if (front_) front_->close();
    shell_.reset();
    control_.reset();
    operator_.reset();  // answers of the actors could still reach it until now
    readiness_.reset();
    driver_.reset();
    if (admissions_) admissions_->close();
    store_.reset();
    if (status.ok()) return status;
    return absl::Status{status.code(), cat("gateway shutdown cleanup failed: ", status.message())};
  }

  GatewayConfig config_;
  Descriptor lock_;
  api::AuthorizationTable table_;
  std::unique_ptr<api::TokenAuthority> tokens_;
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<providers::CredentialStore> credentials_;
  std::shared_ptr<api::Admissions> admissions_;
  std::unique_ptr<drivers::ComputeDriver> driver_;
  api::DriverInfo driver_info_;
  std::unique_ptr<api::ControlPlane> control_;
  api::Router router_;
  std::unique_ptr<oidc::Issuer> issuer_;
  std::unique_ptr<api::Authenticator> authenticator_;
  std::unique_ptr<Readiness> readiness_;
  std::unique_ptr<api::OperatorServer> operator_;
  std::unique_ptr<api::Front> front_;
  std::unique_ptr<api::Shell> shell_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::start(const GatewayConfig& config) {
  auto gateway = std::make_unique<RunningGateway>(config);
  if (auto status = gateway->bring_up(); !status.ok()) return status;
  return gateway;
}

}  // namespace openshell::gateway
