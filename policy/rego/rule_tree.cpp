#include "policy/rego/rule_tree.hpp"

#include "policy/text.hpp"

#include <algorithm>
#include <set>

namespace openshell::policy::rego {
namespace {

using openshell::policy::text::cat;

std::string path_text(const std::vector<std::string>& path) {
  std::string out = "data";
  for (const auto& part : path) out += cat(".", part);
  return out;
}

std::string_view first_name(const Rule& rule) {
  return rule.name.is_variable() ? std::string_view(rule.name.name) : rule.name.parts[0].name;
}

RuleGroup::Form form_of(const Rule& rule, bool has_keys) {
  if (rule.is_function) return RuleGroup::Form::function;
  if (has_keys) return RuleGroup::Form::object;
  return rule.is_set ? RuleGroup::Form::set : RuleGroup::Form::complete;
}

class Placer {
 public:
  Placer(Program& program, Errors& errors) : program_(program), errors_(errors) {}

  void package(const Module& module) {
    Node* node = &program_.root;
    for (const auto& part : module.package) node = child(*node, part);
    node->is_package = true;
    node->has_documents = true;
    for (const Node* up = node->parent; up != nullptr; up = up->parent) const_cast<Node*>(up)->has_documents = true;
    if (node->file.empty()) {
      node->file = module.file;
      node->at = module.at;
    }
  }

  PlacedRule place(const Module& module, const Globals& globals, const Rule& rule) {
    std::vector<std::string> path = module.package;
    path.emplace_back(first_name(rule));
    std::size_t fixed = 1;
    if (rule.name.form == TermForm::reference) {
      while (fixed < rule.name.parts.size() && rule.name.parts[fixed].is_string()) {
        path.emplace_back(rule.name.parts[fixed].scalar.text());
        ++fixed;
      }
    }
    const bool keys = rule.name.form == TermForm::reference && fixed < rule.name.parts.size();
    Node* node = &program_.root;
    for (const auto& part : path) node = child(*node, part);
    const auto form = form_of(rule, keys);
    if (!node->group) {
      node->group = std::make_unique<RuleGroup>();
      auto& group = *node->group;
      group.form = form;
      group.index = static_cast<std::uint32_t>(program_.groups.size());
      group.name = path_text(path);
      group.arity = rule.arguments.size();
      group.node = node;
      group.at = rule.at;
      group.file = module.file;
      program_.groups.push_back(&group);
      if (form != RuleGroup::Form::function) {
        for (Node* up = node; up != nullptr; up = const_cast<Node*>(up->parent)) up->has_documents = true;
      }
    }
    RuleGroup& group = *node->group;
    if (group.form != form || group.arity != rule.arguments.size()) {
      const bool mixes = (group.form == RuleGroup::Form::object || form == RuleGroup::Form::object) && form != RuleGroup::Form::function &&
                         group.form != RuleGroup::Form::function && false;
      if (!mixes && conflicting_.insert(&group).second)
        error(code::kType, module.file, rule.at, cat("conflicting rules ", group.name, " found"));
    }
    if (rule.is_default && !defaults_.insert(&group).second)
      error(code::kType, module.file, rule.at, cat("multiple default rules ", group.name, " found"));
    return {&module, &globals, &rule, &group, fixed};
  }

  /// Groups that stand above packages or other rules.
  void check(const Node& node, const std::string& path) {
    for (const auto& [key, below] : node.children) {
      const std::string here = cat(path, ".", key);
      if (below->group) check_group(*below, here);
      check(*below, here);
    }
  }

 private:
  static Node* child(Node& node, const std::string& name) {
    auto& slot = node.children[name];
    if (!slot) {
      slot = std::make_unique<Node>();
      slot->key = name;
      slot->parent = &node;
    }
    return slot.get();
  }

  void check_group(const Node& node, const std::string& path) {
    if (node.is_package && node.group->form != RuleGroup::Form::object) {
      error(code::kType, node.file, node.at,
            cat("package ", path, " conflicts with rule ", path, " defined at ", node.group->file, ":", node.group->at.row));
      return;
    }
    if (node.children.empty() || node.group->form == RuleGroup::Form::object) return;
    std::vector<const Node*> stack;
    for (const auto& [key, below] : node.children) stack.push_back(below.get());
    while (!stack.empty()) {
      const Node* at = stack.back();
      stack.pop_back();
      if (at->is_package) {
        error(code::kType, at->file, at->at,
              cat("package conflicts with rule ", path, " defined at ", node.group->file, ":", node.group->at.row));
        return;
      }
      if (at->group) {
        error(code::kType, node.group->file, node.group->at, cat("rule ", path, " conflicts with ", at->group->name));
        return;
      }
      for (const auto& [key, below] : at->children) stack.push_back(below.get());
    }
  }

  void error(std::string_view code, const std::string& file, Position at, std::string message) {
    errors_.push_back({std::string(code), std::move(message), file, at});
  }

  Program& program_;
  Errors& errors_;
  std::set<const RuleGroup*> conflicting_;
  std::set<const RuleGroup*> defaults_;
};

}  // namespace

std::vector<PlacedRule> place_rules(const std::vector<Module>& modules, const std::vector<Globals>& globals, Program& program,
                                    Errors& errors) {
  Placer placer(program, errors);
  std::vector<PlacedRule> placed;
  for (const auto& module : modules) placer.package(module);
  for (std::size_t i = 0; i < modules.size(); ++i) {
    for (const auto& rule : modules[i].rules) placed.push_back(placer.place(modules[i], globals[i], rule));
  }
  placer.check(program.root, "data");
  return placed;
}

std::vector<Globals> names_of(const std::vector<Module>& modules, Errors& errors) {
  std::map<std::string, std::set<std::string>> rules;
  for (const auto& module : modules) {
    for (const auto& rule : module.rules) rules[path_text(module.package)].emplace(first_name(rule));
  }
  std::vector<Globals> made;
  for (const auto& module : modules) {
    Globals globals;
    std::set<std::string> imported;
    const auto error = [&](Position at, std::string message) {
      errors.push_back({std::string(code::kCompile), std::move(message), module.file, at});
    };
    for (const auto& import : module.imports) {
      const std::string& root = import.path[0].name;
      if (root != "data" && root != "input") continue;
      std::vector<std::string> path;
      for (const auto& part : import.path) path.emplace_back(part.is_variable() ? std::string_view(part.name) : part.scalar.text());
      const std::string name = import.alias.empty() ? path.back() : import.alias;
      if (module.strict && !imported.insert(name).second) error(import.at, cat("import must not shadow import ", name));
      globals.paths[name] = path;
    }
    for (const auto& name : rules[path_text(module.package)]) {
      std::vector<std::string> path = {"data"};
      path.insert(path.end(), module.package.begin(), module.package.end());
      path.push_back(name);
      globals.paths[name] = std::move(path);
    }
    for (const auto& rule : module.rules) {
      const std::string name(first_name(rule));
      if (module.strict && (name == "input" || name == "data"))
        error(rule.at, cat("rules must not shadow ", name, " (use a different rule name)"));
    }
    made.push_back(std::move(globals));
  }
  return made;
}

}  // namespace openshell::policy::rego
