// Workspaces and their members, by their handlers on a store in memory.
#include <gmock/gmock.h>

#include "api/workspace_scope.hpp"
#include "datamodel.pb.h"
#include "openshell.pb.h"
#include "tests/unit/api/handler_call.hpp"

namespace openshell::api {
namespace {

using namespace openshell::v1;
using testing::ElementsAre;
using testing::HasSubstr;

const As kAdmin{"root", true, true};
const As kBob{"bob", true, false};

class Workspaces : public testing::Test {
 protected:
  Workspaces() {
    EXPECT_TRUE(ensure_default_workspace(*store_).ok());
    add_workspace_handlers(router_, store_.get());
    add_member_handlers(router_, store_.get());
  }
  absl::StatusOr<datamodel::v1::Workspace> create(const std::string& name, const storage::Labels& labels = {}, const As& as = {}) {
    CreateWorkspaceRequest request;
    request.set_name(name);
    for (const auto& [key, value] : labels) (*request.mutable_labels())[key] = value;
    auto answer = call<CreateWorkspaceResponse>(router_, "CreateWorkspace", request, as);
    if (!answer.ok()) return answer.status();
    return answer->workspace();
  }
  absl::StatusOr<datamodel::v1::Workspace> get(const std::string& name, const As& as = {}) {
    GetWorkspaceRequest request;
    request.set_name(name);
    auto answer = call<GetWorkspaceResponse>(router_, "GetWorkspace", request, as);
    if (!answer.ok()) return answer.status();
    return answer->workspace();
  }
  absl::StatusOr<DeletionOutcome> remove(const std::string& name, bool allow_missing = false) {
    DeleteWorkspaceRequest request;
    request.set_name(name);
    request.set_allow_missing(allow_missing);
    auto answer = call<DeleteWorkspaceResponse>(router_, "DeleteWorkspace", request);
    if (!answer.ok()) return answer.status();
    return answer->outcome();
  }
  std::vector<std::string> names(const As& as = {}, const std::string& selector = "", int page = 0) {
    std::vector<std::string> out;
    ListWorkspacesRequest request;
    request.set_label_selector(selector);
    request.set_page_size(page);
    do {
      auto answer = call<ListWorkspacesResponse>(router_, "ListWorkspaces", request, as);
      EXPECT_TRUE(answer.ok()) << answer.status();
      if (!answer.ok()) return out;
      for (const auto& each : answer->workspaces()) out.push_back(each.metadata().name());
      request.set_page_token(answer->next_page_token());
    } while (!request.page_token().empty());
    return out;
  }
  absl::Status add(const std::string& workspace, const std::string& subject, openshell::v1::WorkspaceRole role = WORKSPACE_ROLE_USER,
                   const As& as = {}) {
    AddWorkspaceMemberRequest request;
    request.mutable_workspace_scope()->set_workspace(workspace);
    request.set_principal_subject(subject);
    request.set_role(role);
    return call<AddWorkspaceMemberResponse>(router_, "AddWorkspaceMember", request, as).status();
  }
  absl::StatusOr<DeletionOutcome> take_out(const std::string& workspace, const std::string& subject, bool allow_missing = false) {
    RemoveWorkspaceMemberRequest request;
    request.mutable_workspace_scope()->set_workspace(workspace);
    request.set_principal_subject(subject);
    request.set_allow_missing(allow_missing);
    auto answer = call<RemoveWorkspaceMemberResponse>(router_, "RemoveWorkspaceMember", request);
    if (!answer.ok()) return answer.status();
    return answer->outcome();
  }
  void put(std::string_view type, const std::string& workspace, const std::string& id) {
    ASSERT_TRUE(store_
                    ->write_and_wait([&](storage::Transaction& tx) {
                      storage::Object row;
                      row.type = type;
                      row.id = id;
                      row.workspace = workspace;
                      row.name = id;
                      return tx.create(row).status();
                    })
                    .ok());
  }
  absl::StatusOr<std::uint64_t> store_count(const std::string& workspace) {
    std::uint64_t members = 0;
    auto status = store_->read_and_wait([&](storage::Transaction& tx) -> absl::Status {
      auto counted = tx.count(storage::types::kWorkspaceMember, workspace);
      if (counted.ok()) members = *counted;
      return counted.status();
    });
    if (!status.ok()) return status;
    return members;
  }
  void drop(std::string_view type, const std::string& id) {
    ASSERT_TRUE(store_->write_and_wait([&](storage::Transaction& tx) { return tx.erase(type, id).status(); }).ok());
  }
  std::unique_ptr<storage::Store> store_ = *storage::open_store("sqlite::memory:");
  Router router_;
};

TEST_F(Workspaces, AreCreatedShownAndNamedOnce) {
  const auto made = create("lab", {{"team", "x"}});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->metadata().resource_version(), 1U);
  EXPECT_EQ(made->status().phase(), datamodel::v1::WORKSPACE_PHASE_ACTIVE);
  EXPECT_GT(made->metadata().created_time().seconds(), 0);
  EXPECT_EQ(made->metadata().labels().at("team"), "x");
  EXPECT_EQ(made->metadata().workspace(), "");
  EXPECT_EQ(get("lab")->metadata().id(), made->metadata().id());
  EXPECT_EQ(create("lab").status(), absl::AlreadyExistsError("workspace already exists"));
  EXPECT_EQ(get("nope").status(), absl::NotFoundError("workspace not found"));
}

TEST_F(Workspaces, NamesAreDnsLabelsOfAtMost19Bytes) {
  EXPECT_TRUE(create(std::string(19, 'a')).ok());
  EXPECT_THAT(create(std::string(20, 'a')).status().ToString(), HasSubstr("workspace name exceeds maximum length (20 > 19)"));
  EXPECT_THAT(create("").status().ToString(), HasSubstr("workspace name is required"));
  for (const char* name : {"Lab", "-a", "a-", "a--b", "a.b", "a b", "\xc3\xa4"})
    EXPECT_TRUE(absl::IsInvalidArgument(create(name).status())) << name;
}

TEST_F(Workspaces, AreListedInPagesByLabel) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(create("w" + std::to_string(i), {{"even", i % 2 == 0 ? "yes" : "no"}}).ok());
  EXPECT_EQ(names({}, "", 2).size(), 6U);  // and default
  EXPECT_EQ(names({}, "even=yes", 1), names({}, "even=yes"));
  EXPECT_EQ(names({}, "even=yes").size(), 3U);
}

TEST_F(Workspaces, MembersSeeTheirsAndOnlyTheirs) {
  ASSERT_TRUE(create("lab", {}, kAdmin).ok());
  ASSERT_TRUE(create("other", {}, kAdmin).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(get("lab", kBob).status()));
  EXPECT_THAT(names(kBob), ElementsAre());
  ASSERT_TRUE(add("lab", "bob", WORKSPACE_ROLE_USER, kAdmin).ok());
  EXPECT_TRUE(get("lab", kBob).ok());
  EXPECT_THAT(names(kBob, "", 1), ElementsAre("lab"));
  EXPECT_TRUE(absl::IsPermissionDenied(get("other", kBob).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(get("missing", kBob).status())) << "existence is told to nobody outside";
  EXPECT_EQ(names(kAdmin).size(), 3U);
}

TEST_F(Workspaces, RolesAreGivenByAdminsAndAdminsByPlatformAdmins) {
  ASSERT_TRUE(create("lab", {}, kAdmin).ok());
  ASSERT_TRUE(add("lab", "bob", WORKSPACE_ROLE_ADMIN, kAdmin).ok());
  EXPECT_TRUE(add("lab", "eve", WORKSPACE_ROLE_USER, kBob).ok());
  EXPECT_EQ(add("lab", "mallory", WORKSPACE_ROLE_ADMIN, kBob),
            absl::PermissionDeniedError("only platform admins can assign the workspace admin role"));
  EXPECT_TRUE(absl::IsPermissionDenied(add("lab", "x", WORKSPACE_ROLE_USER, As{"eve", true, false})));
  EXPECT_EQ(add("lab", "eve", WORKSPACE_ROLE_USER, kAdmin), absl::AlreadyExistsError("member already exists in this workspace"));
  EXPECT_THAT(add("lab", "x", WORKSPACE_ROLE_UNSPECIFIED).ToString(), HasSubstr("role must be USER or ADMIN, not UNSPECIFIED"));
  EXPECT_THAT(add("lab", "").ToString(), HasSubstr("principal_subject is required"));
  EXPECT_TRUE(absl::IsInvalidArgument(add("lab", std::string(513, 's'))));
  EXPECT_TRUE(add("lab", std::string(512, 's')).ok());
  EXPECT_EQ(add("nowhere", "x"), absl::NotFoundError("workspace 'nowhere' not found"));
}

TEST_F(Workspaces, MembersAreTakenOut) {
  ASSERT_TRUE(create("lab").ok());
  ASSERT_TRUE(add("lab", "bob").ok());
  EXPECT_EQ(*take_out("lab", "bob"), DELETION_OUTCOME_COMPLETED);
  EXPECT_TRUE(absl::IsNotFound(take_out("lab", "bob").status()));
  EXPECT_EQ(*take_out("lab", "bob", true), DELETION_OUTCOME_ALREADY_ABSENT);
}

TEST_F(Workspaces, HoldAtMostAThousandMembers) {
  ASSERT_TRUE(create("lab").ok());
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(add("lab", "m" + std::to_string(i)).ok()) << i;
  EXPECT_EQ(add("lab", "one-too-many"), absl::ResourceExhaustedError("workspace has reached the maximum of 1000 members"));
  ListWorkspaceMembersRequest request;
  request.mutable_workspace_scope()->set_workspace("lab");
  request.set_page_size(999);
  auto first = call<ListWorkspaceMembersResponse>(router_, "ListWorkspaceMembers", request);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->members_size(), 999);
  request.set_page_token(first->next_page_token());
  EXPECT_EQ(call<ListWorkspaceMembersResponse>(router_, "ListWorkspaceMembers", request)->members_size(), 1);
  EXPECT_EQ(*remove("lab"), DELETION_OUTCOME_COMPLETED) << "members go with the workspace";
  EXPECT_EQ(*store_count("lab"), 0U);
}

TEST_F(Workspaces, DeletionWaitsForWhatIsInIt) {
  ASSERT_TRUE(create("lab").ok());
  put(storage::types::kSandbox, "lab", "s1");
  put(storage::types::kProvider, "lab", "p1");
  EXPECT_EQ(remove("lab").status(), absl::FailedPreconditionError("workspace 'lab' still contains resources: sandbox, provider"));
  EXPECT_EQ(get("lab")->status().phase(), datamodel::v1::WORKSPACE_PHASE_TERMINATING);
  EXPECT_GT(get("lab")->metadata().deletion_time().seconds(), 0);
  EXPECT_EQ(add("lab", "bob"), absl::FailedPreconditionError("workspace 'lab' is being deleted"));
  drop(storage::types::kSandbox, "s1");
  drop(storage::types::kProvider, "p1");
  EXPECT_EQ(*remove("lab"), DELETION_OUTCOME_COMPLETED);
  EXPECT_EQ(remove("lab").status(), absl::NotFoundError("workspace not found"));
  EXPECT_EQ(*remove("lab", true), DELETION_OUTCOME_ALREADY_ABSENT);
  EXPECT_TRUE(create("lab").ok()) << "the name is free again";
  EXPECT_EQ(remove("default").status(), absl::FailedPreconditionError("the default workspace cannot be deleted"));
}

TEST_F(Workspaces, OnlyPlatformAdminsMakeAndDeleteThem) {
  EXPECT_TRUE(absl::IsPermissionDenied(create("lab", {}, kBob).status()));
  DeleteWorkspaceRequest request;
  request.set_name("lab");
  EXPECT_TRUE(absl::IsPermissionDenied(call<DeleteWorkspaceResponse>(router_, "DeleteWorkspace", request, kBob).status()));
}

}  // namespace
}  // namespace openshell::api
