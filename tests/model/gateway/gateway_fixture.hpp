// The gateway's tree in virtual time: real store (in memory, answered at once), scripted driver, scripted supervisor.
#pragma once

#include <gmock/gmock.h>

#include "actors/gateway/gateway_tree.hpp"
#include "actors/gateway/supervisor_link.hpp"
#include "actors/gateway/watch_sink.hpp"
#include "openshell.pb.h"
#include "providers/provider.hpp"
#include "tests/model/gateway/scripted_driver.hpp"
#include "tests/model/virtual_time.hpp"

namespace openshell::gateway {

using namespace std::chrono_literals;
namespace pb = openshell::v1;
namespace sb = openshell::sandbox::v1;

/// The real store, but the caller waits: what it answers is in the mailbox when the call returns.
class InlineStore : public storage::Store {
 public:
  explicit InlineStore(std::unique_ptr<storage::Store> real) : real_{std::move(real)} {}
  void write(Work work, Done done) override {
    give(hold_write, std::move(done), fail_writes.ok() ? real_->write_and_wait(std::move(work)) : fail_writes);
  }
  void read(Work work, Done done) override { give(hold_read, std::move(done), real_->read_and_wait(std::move(work))); }
  absl::Status write_and_wait(Work work) override { return real_->write_and_wait(std::move(work)); }
  absl::Status read_and_wait(Work work) override { return real_->read_and_wait(std::move(work)); }
  std::string page_token(std::string_view binding, const storage::Cursor& cursor) const override {
    return real_->page_token(binding, cursor);
  }
  absl::StatusOr<std::optional<storage::Cursor>> parse_page_token(std::string_view binding, std::string_view token) const override {
    return real_->parse_page_token(binding, token);
  }
  void ping(Done done) override { real_->ping(std::move(done)); }
  absl::Status fail_writes;
  /// The next one of its kind is done at once, but its answer is `held` back as if it were still on its way.
  bool hold_write = false, hold_read = false;
  std::function<void()> held;

 private:
  void give(bool& hold, Done done, const absl::Status& status) {
    if (!std::exchange(hold, false)) return done(status);
    held = [done = std::move(done), status] { done(status); };
  }

  std::unique_ptr<storage::Store> real_;
};

struct FakeLink : SupervisorLink {
  bool send(const pb::GatewayMessage& message) override {
    messages.push_back(message);
    return true;
  }
  void close(const absl::Status& status) override { closed = status.ok() ? absl::UnknownError("closed well") : status; }
  std::vector<std::string> nudges() const {
    std::vector<std::string> out;
    for (const auto& m : messages) {
      if (m.has_config_update()) out.push_back(m.config_update().update_id());
    }
    return out;
  }
  std::vector<pb::GatewayMessage> messages;
  absl::Status closed;
};

struct FakeSink : WatchSink {
  bool closed() const override { return over; }
  bool push(const pb::SandboxStreamEvent& event) override {
    events.push_back(event);
    return true;
  }
  void close(const absl::Status&) override { over = true; }
  std::vector<pb::SandboxStreamEvent> events;
  bool over = false;
};

class Gateway : public test::VirtualTime {
 protected:
  void SetUp() override {
    auto opened = storage::open_store("sqlite::memory:");
    ASSERT_TRUE(opened.ok()) << opened.status();
    store = std::make_unique<InlineStore>(std::move(*opened));
    begin();
  }
  void TearDown() override {
    tree.reset();
    run();
  }
  void begin() {
    TreeOptions options;
    options.store = store.get();
    options.driver = driver;
    options.driver_name = "scripted";
    options.threads = false;
    options.now = [this] { return now; };
    options.new_id = [this] {
      char text[40];
      std::snprintf(text, sizeof text, "%08x-0000-4000-8000-000000000000", ++ids);
      return std::string{text};
    };
    options.mint = [](const records::SandboxRecord& record) -> absl::StatusOr<drivers::LaunchAuthentication> {
      drivers::LaunchAuthentication launch;
      launch.runtime_generation = GenerationId{record.runtime_generation()};
      launch.auth_epoch = record.auth_epoch();
      return launch;
    };
    options.fatal = [this](const std::string& which) { fatal.push_back(which); };
    tree = std::make_unique<GatewayTree>(sys, std::move(options));
    std::shared_ptr<StoredSandboxes> all = std::make_shared<StoredSandboxes>();
    ASSERT_TRUE(store
                    ->read_and_wait([&](storage::Transaction& tx) {
                      auto loaded = load_all(tx);
                      if (loaded.ok()) *all = std::move(*loaded);
                      return loaded.status();
                    })
                    .ok());
    tree->load(GlobalView{std::make_shared<records::SettingsRecord>(), 0}, all);
    run();
  }
  void restart() {
    tree.reset();
    run();
    begin();
  }
  void pass(std::chrono::milliseconds by) {
    for (auto left = by; left.count() > 0; left -= 100ms) {
      now += 100;
      advance(100ms);
    }
  }

  template <class Answer, class Target, class... Args>
  Answer ask(const Target& target, Args... args) {
    Answer out;
    bool answered = false;
    sys.spawn([&, target](caf::event_based_actor* self) {
      self->request(target, caf::infinite, args...)
          .then(
              [&](Answer& answer) {
                out = std::move(answer);
                answered = true;
              },
              [&](const caf::error& error) { ADD_FAILURE() << self->system().render(error); });
    });
    run();
    EXPECT_TRUE(answered);
    return out;
  }
  template <class Response, class Target, class Request>
  absl::StatusOr<Response> call(const Target& target, Request request, Caller caller = {}) {
    auto reply = ask<Reply<Response>>(target, Ask<Request>{std::make_shared<const Request>(std::move(request)), caller});
    if (!reply.value.ok()) return reply.value.status();
    return **reply.value;
  }
  /// Nobody waits for the answer.
  template <class Request>
  void send(const std::string& name, Request request) {
    caf::anon_send(entity(name), Ask<Request>{std::make_shared<const Request>(std::move(request)), {}});
    run();
  }
  SandboxEntity entity(const std::string& name) {
    auto found = ask<Handed<SandboxHandle>>(tree->actors().index, find_atom::value, std::string{"default"}, name);
    return found.value.ok() ? (*found.value)->entity : SandboxEntity{};
  }
  absl::StatusOr<pb::SandboxResponse> create(const std::string& name, std::function<void(pb::CreateSandboxRequest&)> change = {}) {
    pb::CreateSandboxRequest request;
    request.mutable_workspace_scope()->set_workspace("default");
    request.mutable_spec();
    request.set_name(name);
    if (change) change(request);
    return call<pb::SandboxResponse>(tree->actors().index, request);
  }
  pb::Sandbox get(const std::string& name) {
    auto reply = ask<Reply<pb::Sandbox>>(entity(name), get_atom::value);
    return reply.value.ok() ? **reply.value : pb::Sandbox{};
  }
  pb::SandboxPhase phase(const std::string& name) { return get(name).status().phase(); }

  std::shared_ptr<FakeLink> connect(const std::string& name, const std::string& instance, std::uint64_t epoch = 1) {
    auto link = std::make_shared<FakeLink>();
    SessionOffer offer;
    offer.sandbox_id = get(name).metadata().id();
    offer.instance_id = instance;
    offer.connection_epoch = epoch;
    offer.config_push = offer.provider_readiness = true;
    offer.link = link;
    offer.entity = entity(name);
    auto granted = ask<Reply<SessionGrant>>(tree->actors().sessions, add_atom::value, offer);
    EXPECT_TRUE(granted.value.ok());
    if (granted.value.ok()) session = (*granted.value)->session_id;
    return link;
  }
  sb::GetSandboxConfigResponse config(const std::string& name) {
    return *call<sb::GetSandboxConfigResponse>(entity(name), sb::GetSandboxConfigRequest{});
  }
  absl::Status report(const std::string& name, const std::string& instance, pb::ConfigurationAdmissionState state) {
    const auto current = config(name);
    pb::ReportSandboxConfigurationRequest request;
    request.set_expected_instance_id(current.configuration_instance_id());
    auto& admission = *request.mutable_admission();
    admission.set_instance_id(instance);
    admission.set_state(state);
    if (state != pb::CONFIGURATION_ADMISSION_STATE_PENDING) {
      admission.set_policy_version(current.version());
      admission.set_policy_hash(current.policy_hash());
      admission.set_config_revision(current.config_revision());
      admission.set_provider_env_revision(current.provider_env_revision());
    }
    return call<pb::ReportSandboxConfigurationResponse>(entity(name), request).status();
  }
  /// What a supervisor does until its sandbox is READY.
  std::shared_ptr<FakeLink> make_ready(const std::string& name, const std::string& instance) {
    EXPECT_TRUE(report(name, instance, pb::CONFIGURATION_ADMISSION_STATE_PENDING).ok());
    auto link = connect(name, instance);
    EXPECT_TRUE(report(name, instance, pb::CONFIGURATION_ADMISSION_STATE_ACCEPTED).ok());
    return link;
  }
  static sb::SandboxPolicy policy(std::uint32_t port) {
    sb::SandboxPolicy out;
    out.set_version(1);
    auto& rule = (*out.mutable_network_policies())["web"];
    rule.set_name("web");
    auto& endpoint = *rule.add_endpoints();
    endpoint.set_host("api.example.com");
    endpoint.set_port(port);
    rule.add_binaries()->set_path("/usr/bin/curl");
    return out;
  }
  absl::StatusOr<pb::UpdateConfigResponse> set_policy(const std::string& name, const sb::SandboxPolicy& what) {
    pb::UpdateConfigRequest request;
    *request.mutable_policy() = what;
    return call<pb::UpdateConfigResponse>(entity(name), request);
  }
  /// A provider as it is stored now, with these environment keys. Nobody is told.
  void store_provider(const std::string& name, const std::vector<std::string>& keys) {
    EXPECT_TRUE(store
                    ->write_and_wait([&](storage::Transaction& tx) -> absl::Status {
                      auto found = providers::find_provider(tx, "default", name);
                      if (!found.ok()) return found.status();
                      auto provider = found->value_or(providers::Provider{});
                      const bool fresh = provider.id.empty();
                      if (fresh) provider.id = storage::new_uuid();
                      provider.workspace = "default";
                      provider.name = name;
                      provider.type = std::string{providers::kGenericType};
                      provider.credentials.clear();
                      for (const auto& key : keys) provider.credentials[key].boundary_epoch = provider.id;
                      const auto row = providers::to_row(provider);
                      return fresh ? tx.create(row).status() : tx.update(row).status();
                    })
                    .ok());
  }
  absl::Status attach(const std::string& name, const std::string& provider) {
    pb::AttachSandboxProviderRequest request;
    request.set_provider(provider);
    return call<pb::AttachSandboxProviderResponse>(entity(name), request).status();
  }
  /// The answer that the store held back arrives now.
  void release() {
    ASSERT_TRUE(store->held) << "nothing was held back";
    std::exchange(store->held, nullptr)();
    run();
  }
  absl::Status loaded(const std::string& name, std::uint32_t version, pb::PolicyStatus status = pb::POLICY_STATUS_LOADED) {
    pb::ReportPolicyStatusRequest request;
    request.set_version(version);
    request.set_status(status);
    return call<pb::ReportPolicyStatusResponse>(entity(name), request).status();
  }

  const std::string one = "aaaaaaaa-0000-4000-8000-000000000001";
  const std::string two = "aaaaaaaa-0000-4000-8000-000000000002";
  Millis now = 1'700'000'000'000;
  unsigned ids = 0;
  std::string get_id;
  std::string session;
  std::vector<std::string> fatal;  ///< actors whose death ends the process
  std::shared_ptr<test::ScriptedDriver> driver = std::make_shared<test::ScriptedDriver>();
  std::unique_ptr<InlineStore> store;
  std::unique_ptr<GatewayTree> tree;
};

}  // namespace openshell::gateway
