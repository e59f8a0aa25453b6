#include "api/sandboxes/actor_source.hpp"

#include <caf/all.hpp>

#include "actors/gateway/relay_pipe.hpp"
#include "actors/introspection/actor_frames.hpp"
#include "messages/operator.hpp"

namespace openshell::api {
namespace {

/// Answers that are no StatusOr of their own.
template <class Answer, class Target, class... Question>
void inquire_of(caf::actor_system& system, const Target& target, ActorSource::Then<Answer> then, Question... question) {
  const UnpinLogger unpin;
  system.spawn([target, then = std::move(then), question...](caf::event_based_actor* self) {
    self->request(target, caf::infinite, question...)
        .then([then](Answer& answer) { then(std::move(answer)); },
              [then](const caf::error&) { then(absl::UnavailableError("the actor does not answer")); });
  });
}

class PlaneSource final : public ActorSource {
 public:
  explicit PlaneSource(PlanePtr plane)
      : plane_{std::move(plane)},
        directory_{caf::actor_cast<DirectoryView>(plane_->actors.directory)},
        sessions_{caf::actor_cast<gateway::SessionRegistryView>(plane_->actors.sessions)},
        bus_{caf::actor_cast<gateway::SandboxBusView>(plane_->actors.bus)} {}

  void changes(std::uint64_t since, Then<ActorChanges> then) override {
    inquire_of<ActorChanges>(plane_->system, directory_, std::move(then), changes_atom::value, since);
  }

  void inquire(const std::string& actor, Then<ActorSnapshot> then) override {
    inquire_of<ActorSnapshot>(plane_->system, directory_, std::move(then), inquire_atom::value, actor);
  }

  void sessions(Then<std::map<std::string, std::string>> then) override {
    inquire_of<std::map<std::string, std::string>>(plane_->system, sessions_, std::move(then), list_atom::value);
  }

  void name_of(const std::string& sandbox_id, Then<std::string> then) override {
    with_handle(sandbox_id, [then](absl::StatusOr<std::shared_ptr<SandboxHandle>> found) {
      found.ok() ? then(cat((*found)->workspace, "/", (*found)->name)) : then(found.status());
    });
  }

  void open(const std::string& sandbox_id, Then<std::shared_ptr<gateway::RelayEnd>> then) override {
    gateway::RelayRequest request;
    request.sandbox_id = sandbox_id;
    request.service_id = std::string{kActorsService};
    ask<gateway::Handed<gateway::RelayEnd>>(
        plane_->system, plane_->actors.relays,
        [then = std::move(then)](gateway::Handed<gateway::RelayEnd> relay) { then(std::move(relay.value)); }, gateway::open_atom::value,
        request);
  }

  void denials(const std::string& denial_id, Then<gateway::DenialLines> then) override {
    inquire_of<gateway::DenialLines>(plane_->system, bus_, std::move(then), gateway::find_atom::value, denial_id);
  }

  void proposals(const std::string& sandbox_id, Then<std::shared_ptr<const v1::GetDraftPolicyResponse>> then) override {
    ask_entity<v1::GetDraftPolicyRequest, v1::GetDraftPolicyResponse>(sandbox_id, std::move(then));
  }

  void revisions(const std::string& sandbox_id, Then<std::shared_ptr<const v1::ListSandboxPoliciesResponse>> then) override {
    ask_entity<v1::ListSandboxPoliciesRequest, v1::ListSandboxPoliciesResponse>(sandbox_id, std::move(then));
  }

 private:
  void with_handle(const std::string& sandbox_id, Then<std::shared_ptr<SandboxHandle>> then) {
    ask<gateway::Handed<SandboxHandle>>(
        plane_->system, plane_->actors.index,
        [then = std::move(then)](gateway::Handed<SandboxHandle> found) { then(std::move(found.value)); }, gateway::find_atom::value,
        sandbox_id);
  }

  template <class Request, class Response>
  void ask_entity(const std::string& sandbox_id, Then<std::shared_ptr<const Response>> then) {
    with_handle(sandbox_id, [plane = plane_, then = std::move(then)](absl::StatusOr<std::shared_ptr<SandboxHandle>> found) {
      if (!found.ok()) return then(found.status());
      auto request = std::make_shared<Request>();
      request->set_sandbox((*found)->name);
      request->mutable_workspace_scope()->set_workspace((*found)->workspace);
      ask<gateway::Reply<Response>>(
          plane->system, (*found)->entity, [then](gateway::Reply<Response> reply) { then(std::move(reply.value)); },
          Ask<Request>{std::shared_ptr<const Request>{std::move(request)}, {}});
    });
  }

  const PlanePtr plane_;
  // The same actors, with the questions of those who look.
  const DirectoryView directory_;
  const gateway::SessionRegistryView sessions_;
  const gateway::SandboxBusView bus_;
};

}  // namespace

std::shared_ptr<ActorSource> make_actor_source(PlanePtr plane) { return std::make_shared<PlaneSource>(std::move(plane)); }

}  // namespace openshell::api
