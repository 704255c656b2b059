"""kornia's functions on images: filters, colours, morphology, enhancement, features, geometry, losses and metrics."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from benchmarks.corpora.corpus import CorpusTask, file_name
from hipwright.syntax import parse

INPUTS = {
    "image": "torch.rand({b}, 3, {s}, {s})",
    "other": "torch.rand({b}, 3, {s}, {s})",
    "gray": "torch.rand({b}, 1, {s}, {s})",
    "wide": "torch.rand({b}, 3, {s}, {t})",
    "quad": "torch.rand({b}, 4, {s}, {s})",
    "volume": "torch.rand({b}, 2, 9, {h}, {h})",
    "scores": "torch.randn({b}, 4, {s}, {s})",
    "score": "torch.randn({b}, 1, {s}, {s})",
    "classes": "torch.randint(0, 4, ({b}, {s}, {s}))",
    "one_class": "torch.randint(0, 2, ({b}, {s}, {s}))",
    "mask": "torch.rand({b}, 1, {s}, {s}).round()",
    "shares": "torch.softmax(torch.randn({b}, 2, {h}, {h}).flatten(2), -1).view({b}, 2, {h}, {h})",
    "shares_2": "torch.softmax(torch.randn({b}, 2, {h}, {h}).flatten(2), -1).view({b}, 2, {h}, {h})",
    "flow": "torch.rand({b}, {s}, {s}, 2)",
    "flow_2": "torch.rand({b}, {s}, {s}, 2)",
    "points": "torch.rand({b}, {n}, 2)",
    "points_2": "torch.rand({b}, {n}, 2)",
    "points_3d": "torch.rand({b}, {n}, 3) + 0.5",
    "weights": "torch.rand({b}, {n})",
    "quaternions": "torch.nn.functional.normalize(torch.randn({m}, 4), dim=-1)",
    "axis_angles": "torch.randn({m}, 3)",
    "rotations": "torch.linalg.qr(torch.randn({m}, 3, 3))[0]",
    "poses": "torch.cat([torch.linalg.qr(torch.randn({m}, 3, 3))[0], torch.randn({m}, 3, 1)], -1)",
    "homographies": "torch.eye(3) + 0.05 * torch.rand({b}, 3, 3)",
    "affines": "torch.eye(2, 3) + 0.05 * torch.rand({b}, 2, 3)",
    "camera": "torch.tensor([[30.0, 0.0, 8.0], [0.0, 30.0, 8.0], [0.0, 0.0, 1.0]]).repeat({b}, 1, 1)",
    "kernel": "torch.ones(3, 5)",
    "stencil": "torch.rand(1, 3, 3)",
    "angle": "20.0 * torch.rand({b})",
    "factor": "0.5 + torch.rand({b})",
    "descriptors": "torch.randn({n}, 32)",
    "descriptors_2": "torch.randn({n} + 3, 32)",
    "boxes": "torch.rand({n}, 4) + torch.tensor([0.0, 0.0, 1.0, 1.0])",
    "depth": "torch.rand({b}, 1, {s}, {s}) + 0.5",
    "lafs": "torch.cat([torch.eye(2) + 0.1 * torch.randn({b}, {n}, 2, 2), torch.rand({b}, {n}, 2, 1) * {s}], -1)",
}
"""Expressions of inputs. b: images; s, t: height and width; h: half; n: points; m: rotations."""
SMALL = {"b": 2, "s": 20, "t": 26, "h": 10, "n": 17, "m": 33}
REAL = {"b": 8, "s": 512, "t": 768, "h": 256, "n": 4096, "m": 1 << 20}

FUNCTIONS = """
filters.gaussian_blur2d(image, (5, 5), (1.5, 1.2))
filters.gaussian_blur2d(image, (3, 7), (1.0, 2.0), border_type='replicate', separable=False)
filters.box_blur(image, (3, 5))
filters.box_blur(image, (4, 4), border_type='circular')
filters.median_blur(gray, (3, 3))
filters.bilateral_blur(image, (3, 3), 0.1, (1.5, 1.5))
filters.joint_bilateral_blur(image, other, (5, 5), 0.1, (1.5, 1.5))
filters.guided_blur(image, other, (5, 5), 0.1)
filters.sobel(image)
filters.sobel(image, normalized=False)
filters.spatial_gradient(image, mode='sobel', order=2)
filters.spatial_gradient(image, mode='diff')
filters.spatial_gradient3d(volume)
filters.laplacian(image, (5, 5))
filters.unsharp_mask(image, (5, 5), (1.5, 1.5))
filters.motion_blur(image, 5, 35.0, 0.5)
filters.filter2d(image, stencil)
filters.filter2d_separable(image, stencil[:, 0], stencil[:, 1], padding='valid')
filters.filter3d(volume, torch.ones(1, 3, 3, 3))
filters.blur_pool2d(image, 3)
filters.max_blur_pool2d(image, 3)
filters.edge_aware_blur_pool2d(image, 3)
filters.fft_conv(image, stencil)
filters.in_range(image, (0.1, 0.2, 0.3), (0.8, 0.9, 0.7))
filters.canny(gray)[0]
color.rgb_to_grayscale(image)
color.rgb_to_hsv(image)
color.hsv_to_rgb(image)
color.rgb_to_hls(image)
color.hls_to_rgb(image)
color.rgb_to_lab(image)
color.lab_to_rgb(image)
color.rgb_to_luv(image)
color.luv_to_rgb(image)
color.rgb_to_xyz(image)
color.xyz_to_rgb(image)
color.rgb_to_yuv(image)
color.yuv_to_rgb(image)
color.rgb_to_yuv420(image)
color.rgb_to_yuv422(image)
color.rgb_to_ycbcr(image)
color.ycbcr_to_rgb(image)
color.rgb_to_linear_rgb(image)
color.linear_rgb_to_rgb(image)
color.rgb_to_rgba(image, 0.7)
color.rgba_to_rgb(quad)
color.raw_to_rgb(gray, kornia.color.CFA.BG)
color.rgb_to_raw(image, kornia.color.CFA.RG)
color.sepia_from_rgb(image)
color.bgr_to_grayscale(image)
morphology.dilation(gray, kernel)
morphology.erosion(gray, kernel, engine='convolution')
morphology.opening(image, kernel)
morphology.closing(image, kernel)
morphology.gradient(image, kernel)
morphology.top_hat(image, kernel)
morphology.bottom_hat(image, kernel)
enhance.adjust_brightness(image, 0.2)
enhance.adjust_brightness_accumulative(image, factor)
enhance.adjust_contrast(image, 0.7)
enhance.adjust_contrast_with_mean_subtraction(image, factor)
enhance.adjust_gamma(image, 2.2, 0.9)
enhance.adjust_hue(image, 0.3)
enhance.adjust_saturation(image, factor)
enhance.adjust_saturation_with_gray_subtraction(image, factor)
enhance.adjust_sigmoid(image)
enhance.adjust_log(image)
enhance.equalize(image)
enhance.equalize_clahe(image, 2.0, (2, 2))
enhance.posterize(image, 3)
enhance.solarize(image, 0.4)
enhance.sharpness(image, factor)
enhance.invert(image)
enhance.shift_rgb(image, factor, factor, factor)
enhance.normalize_min_max(image, 0.0, 2.0)
enhance.normalize(image, torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.3, 0.4]))
enhance.denormalize(image, torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.3, 0.4]))
enhance.add_weighted(image, 0.3, other, 0.6, 0.1)
enhance.histogram(gray.flatten(1), torch.linspace(0, 1, 16), torch.tensor(0.1))
enhance.histogram2d(gray.flatten(1), gray.flatten(1).flip(1), torch.linspace(0, 1, 8), torch.tensor(0.1))
enhance.image_histogram2d(gray, 0.0, 1.0, 8)[0]
enhance.integral_image(image)
enhance.jpeg_codec_differentiable(image[:, :, :16, :16], torch.full((image.shape[0],), 50.0))
enhance.zca_whiten(image.flatten(0, 2))
feature.harris_response(gray)
feature.gftt_response(gray)
feature.hessian_response(gray)
feature.dog_response_single(gray)
feature.match_nn(descriptors, descriptors_2)
feature.match_mnn(descriptors, descriptors_2)
feature.match_snn(descriptors, descriptors_2, 0.9)
feature.get_laf_scale(lafs)
feature.get_laf_orientation(lafs)
feature.make_upright(lafs)
feature.laf_to_boundary_points(lafs)
feature.extract_patches_simple(gray, lafs, 8)
metrics.psnr(image, other, 1.0)
metrics.ssim(image, other, 5)
metrics.ssim3d(volume, volume.flip(2), 3)
metrics.aepe(flow, flow_2)
metrics.confusion_matrix(classes, classes.flip(1), 4)
metrics.mean_iou(classes, classes.flip(1), 4)
metrics.mean_iou_bbox(boxes, boxes.flip(0))
losses.ssim_loss(image, other, 5)
losses.ssim3d_loss(volume, volume.flip(2), 3)
losses.MS_SSIMLoss(sigmas=[0.5, 1.0], reduction='mean')(image, other)
losses.psnr_loss(image, other, 1.0)
losses.total_variation(image)
losses.inverse_depth_smoothness_loss(gray, image)
losses.focal_loss(scores, classes, 0.5, 2.0, 'mean')
losses.binary_focal_loss_with_logits(score, mask, 0.25, 2.0, 'none')
losses.dice_loss(scores, classes)
losses.tversky_loss(scores, classes, 0.4, 0.6)
losses.lovasz_hinge_loss(score, one_class)
losses.lovasz_softmax_loss(scores, classes)
losses.js_div_loss_2d(shares, shares_2)
losses.kl_div_loss_2d(shares, shares_2, 'none')
losses.charbonnier_loss(image, other, 'mean')
losses.welsch_loss(image, other)
losses.cauchy_loss(image, other, 'sum')
losses.geman_mcclure_loss(image, other, 'mean')
losses.HausdorffERLoss(alpha=2.0, k=3)(scores, classes[:, None])
losses.mutual_information_loss_2d(gray, gray.flip(2))
losses.one_hot(classes, 4, scores.device, scores.dtype)
geometry.transform.resize(image, (13, 31))
geometry.transform.resize(image, (7, 9), antialias=True)
geometry.transform.rotate(image, angle)
geometry.transform.translate(image, torch.tensor([[1.5, -2.0]]))
geometry.transform.scale(image, factor[:, None].expand(-1, 2))
geometry.transform.shear(image, torch.tensor([[0.1, -0.2]]))
geometry.transform.hflip(image)
geometry.transform.vflip(image)
geometry.transform.rot180(image)
geometry.transform.pyrdown(image)
geometry.transform.pyrup(image)
geometry.transform.build_pyramid(image, 3)
geometry.transform.build_laplacian_pyramid(image[:, :, :16, :16], 2)
geometry.transform.warp_affine(image, affines, (17, 23))
geometry.transform.warp_perspective(image, homographies, (17, 23))
geometry.transform.homography_warp(image, homographies, (17, 23))
geometry.transform.remap(image, flow[..., 0] * 9, flow[..., 1] * 9)
geometry.transform.elastic_transform2d(image, flow.movedim(-1, 1) * 2 - 1, (7, 7), (2.0, 2.0))
geometry.transform.center_crop(image, (8, 12))
geometry.transform.get_rotation_matrix2d(points[:, 0], angle, factor[:, None].expand(-1, 2))
geometry.transform.invert_affine_transform(affines)
geometry.conversions.normalize_homography(homographies, (17, 23), (11, 13))
geometry.conversions.quaternion_to_rotation_matrix(quaternions)
geometry.conversions.rotation_matrix_to_quaternion(rotations)
geometry.conversions.axis_angle_to_rotation_matrix(axis_angles)
geometry.conversions.rotation_matrix_to_axis_angle(rotations)
geometry.conversions.quaternion_to_axis_angle(quaternions)
geometry.conversions.axis_angle_to_quaternion(axis_angles)
geometry.conversions.quaternion_log_to_exp(axis_angles)
geometry.conversions.quaternion_exp_to_log(quaternions)
geometry.conversions.euler_from_quaternion(*quaternions.unbind(-1))
geometry.conversions.convert_points_to_homogeneous(points)
geometry.conversions.convert_points_from_homogeneous(points_3d)
geometry.conversions.normalize_pixel_coordinates(points, 20, 30)
geometry.conversions.cart2pol(points[..., 0], points[..., 1])
geometry.conversions.normalize_quaternion(quaternions)
geometry.linalg.transform_points(homographies, points)
geometry.linalg.relative_transformation(kornia.eye_like(4, poses), kornia.eye_like(4, poses))
geometry.linalg.point_line_distance(points, points_3d)
geometry.linalg.squared_norm(points_3d)
geometry.liegroup.So3.exp(axis_angles).matrix()
geometry.liegroup.So3.hat(axis_angles)
geometry.camera.project_points(points_3d, camera[:, None])
geometry.camera.unproject_points(points, points_3d[..., :1], camera[:, None])
geometry.camera.cam2pixel(flow.new_ones(flow.shape[:3] + (3,)) + flow[..., :1], torch.eye(4).repeat(flow.shape[0], 1, 1))
geometry.depth.depth_to_3d(depth, camera)
geometry.depth.depth_to_normals(depth, camera)
geometry.depth.depth_from_disparity(depth, 1.5, 30.0)
geometry.calibration.distort_points(points, camera, 0.1 * factor[:, None].expand(-1, 4))
geometry.calibration.undistort_points(points, camera, 0.1 * factor[:, None].expand(-1, 4))
geometry.epipolar.cross_product_matrix(axis_angles)
geometry.epipolar.sampson_epipolar_distance(points, points_2, homographies)
geometry.epipolar.symmetrical_epipolar_distance(points, points_2, homographies)
geometry.epipolar.left_to_right_epipolar_distance(points, points_2, homographies)
geometry.epipolar.normalize_points(points)
geometry.epipolar.find_fundamental(points, points_2, weights)
geometry.homography.oneway_transfer_error(points, points_2, homographies)
geometry.homography.symmetric_transfer_error(points, points_2, homographies)
geometry.homography.find_homography_dlt(points, points_2, weights)
geometry.subpix.spatial_soft_argmax2d(gray)
geometry.subpix.spatial_expectation2d(shares)
geometry.subpix.spatial_softmax2d(gray)
geometry.subpix.render_gaussian2d(points[0], torch.ones_like(points[0]), (15, 18))
geometry.subpix.conv_soft_argmax2d(gray, (3, 3))
geometry.subpix.nms2d(gray, (3, 3))
geometry.bbox.bbox_generator(points[:, 0, 0], points[:, 0, 1], factor, factor)
geometry.bbox.validate_bbox(points[:, :4])
contrib.extract_tensor_patches(image, (4, 4), stride=(2, 2))
contrib.distance_transform(mask, 5)
contrib.connected_components(mask, 5)
augmentation.Normalize(0.5, 0.2)(image)
"""
"""One expression a line, of modules of kornia and names of `INPUTS`."""

TEXT = '''"""kornia.{call}."""

import kornia
import torch


class Model(torch.nn.Module):
    def forward(self, {names}):
        return kornia.{call}


def get_inputs():
    return [{inputs}]
'''


class KorniaFunctions:
    """One task for each line of `FUNCTIONS`; its family is its module and function."""

    packages = ("torch", "kornia")
    imported: tuple[str, ...] = ("kornia",)

    def tasks(self, real: bool = False) -> Iterator[CorpusTask]:
        """All tasks. real: eight images of 512 x 512, 4096 points, a million rotations."""
        sizes = REAL if real else SMALL
        for number, call in enumerate(FUNCTIONS.split("\n")):
            names = _names(call)
            if not names:
                continue
            inputs = ", ".join(INPUTS[name].format_map(sizes) for name in names)
            family = call.partition("(")[0]
            text = TEXT.format(call=call, names=", ".join(names), inputs=inputs)
            yield CorpusTask(file_name(family.replace(".", "_"), f"{number:03d}"), family, text)


def _names(call: str) -> list[str]:
    """The inputs that an expression names, in the order of their first use."""
    found = [node.id for node in ast.walk(parse(call)) if isinstance(node, ast.Name)]
    return [name for name in dict.fromkeys(found) if name in INPUTS]
