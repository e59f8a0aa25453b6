// The providers of a sandbox as a list, and what an update of a provider means to the sandboxes that have it.
#include <atomic>
#include <mutex>

#include "api/provider_view.hpp"
#include "api/sandboxes/plane.hpp"
#include "api/store_call.hpp"

namespace openshell::api {
namespace {

using ListReply = Reply<pb::ListSandboxProvidersResponse>;

/// One page of the attached names: in the order of the attachment, so the token holds a place in it.
absl::Status fill_page(storage::Transaction& tx, const pb::Sandbox& sandbox, std::size_t from, std::size_t size, std::size_t& next,
                       pb::ListSandboxProvidersResponse& response) {
  const auto& names = sandbox.spec().providers();
  std::size_t at = from;
  for (; at < static_cast<std::size_t>(names.size()) && at < from + size; ++at) {
    const auto& name = names[static_cast<int>(at)];
    auto provider = providers::find_provider(tx, sandbox.metadata().workspace(), name);
    if (!provider.ok()) return from_storage("list sandbox providers", provider.status());
    if (!*provider) return absl::FailedPreconditionError(cat("provider '", name, "' not found"));
    *response.add_providers() = redacted(**provider);
  }
  next = at < static_cast<std::size_t>(names.size()) ? at : 0;
  return absl::OkStatus();
}

void list(const PlanePtr& plane, const std::shared_ptr<SandboxHandle>& found, const pb::ListSandboxProvidersRequest& request,
          const ListReply& reply) {
  auto size = page_size(request.page_size());
  if (!size.ok()) return reply.fail(size.status());
  const auto binding = cat("ListSandboxProviders\n", found->sandbox_id);
  auto cursor = plane->store->parse_page_token(binding, request.page_token());
  if (!cursor.ok()) return reply.fail(invalid_field("page_token", to_std(cursor.status().message())));
  const auto from = *cursor ? static_cast<std::size_t>((*cursor)->position) : 0;
  ask<gateway::Reply<pb::Sandbox>>(
      plane->system, found->entity,
      [=, size = *size](gateway::Reply<pb::Sandbox> answer) {
        if (!answer.value.ok()) return reply.fail(answer.value.status());
        answer_in(Access::kRead, *plane->store, reply,
                  [=, sandbox = *answer.value](storage::Transaction& tx, pb::ListSandboxProvidersResponse& response) -> absl::Status {
                    std::size_t next = 0;
                    if (auto status = fill_page(tx, *sandbox, from, size, next, response); !status.ok()) return status;
                    if (next != 0)
                      response.set_next_page_token(plane->store->page_token(binding, {static_cast<std::int64_t>(next), "", "", "x"}));
                    return absl::OkStatus();
                  });
      },
      gateway::get_atom::value);
}

/// Answers of several sandboxes, counted down.
struct Collected {
  std::mutex mutex;
  std::size_t open = 0;
  std::vector<pb::ProviderMutationReceipt> receipts;
  std::function<void(std::vector<pb::ProviderMutationReceipt>)> then;

  void one(const gateway::Reply<pb::ProviderMutationReceipt>& answer) {
    std::unique_lock lock{mutex};
    if (answer.value.ok()) receipts.push_back(**answer.value);
    if (--open > 0) return;
    auto all = std::move(receipts);
    lock.unlock();
    then(std::move(all));
  }
};

}  // namespace

void collect_receipts(const PlanePtr& plane, const std::string& workspace, const std::vector<std::string>& sandboxes,
                      const gateway::ProviderUpdated& updated, std::function<void(std::vector<pb::ProviderMutationReceipt>)> then) {
  auto all = std::make_shared<Collected>();
  all->open = sandboxes.size();
  all->then = std::move(then);
  for (const auto& name : sandboxes) {
    ask<gateway::Handed<SandboxHandle>>(
        plane->system, plane->actors.index,
        [=](gateway::Handed<SandboxHandle> found) {
          if (!found.value.ok()) return all->one({found.value.status()});
          ask<gateway::Reply<pb::ProviderMutationReceipt>>(
              plane->system, (*found.value)->entity, [all](gateway::Reply<pb::ProviderMutationReceipt> answer) { all->one(answer); },
              updated);
        },
        gateway::find_atom::value, workspace, name);
  }
}

void add_sandbox_provider_handlers(Router& router, const PlanePtr& plane) {
  router.unary<pb::ListSandboxProvidersRequest, pb::ListSandboxProvidersResponse>(
      "ListSandboxProviders", [=](Context ctx, pb::ListSandboxProvidersRequest request, const ListReply& reply) {
        with_sandbox(
            plane, ctx, request.workspace_scope(), request.sandbox(), "sandbox", WorkspaceRole::kUser,
            [=](const std::shared_ptr<SandboxHandle>& found) { list(plane, found, request, reply); },
            [reply](const absl::Status& status) { reply.fail(status); });
      });
}

}  // namespace openshell::api
